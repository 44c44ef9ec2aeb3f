//! Processes that call one Python function, sample by sample.
//!
//! In: the fields of a sample. Out: the values that the function returned. A thread that needs the function takes an idle worker, or
//! starts another one, so there are at most as many workers as threads. A worker is a new interpreter (not a fork, which would be
//! unsafe beside threads). Its standard input is its socket.
//!
//! Always true: a worker that was lost or interrupted is never used again, and no worker outlives its pool.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use feedline_data::memory::Cancel;
use feedline_memory::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};

use super::frame;
use super::function_frame::{FunctionCall, FunctionReply, FunctionValue, Returned, call_frame, contents, read_reply};
use super::link::{Link, LinkError};

/// How long a worker may take to end by itself after its socket was closed.
const GRACE: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(2);
/// The exit code of a worker that the kernel has ended counts as known after this time.
const EXIT_TIME: Duration = Duration::from_secs(5);

/// How to start a worker.
#[derive(Clone, Debug)]
pub struct FunctionCommand {
    /// The interpreter and its arguments.
    pub program: Vec<OsString>,
    /// Sent to each worker first. Opaque: it tells the worker its function.
    pub function: Vec<u8>,
}

/// The workers of a function.
#[derive(Debug)]
pub struct FunctionPool {
    command: FunctionCommand,
    idle: Mutex<Vec<FunctionWorker>>,
}

/// Why a call gave no values.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The run was closed.
    #[error("the run was closed")]
    Cancelled,
    /// No worker could be started.
    #[error("cannot start {program:?} for the function")]
    Start {
        /// The interpreter.
        program: OsString,
        /// The cause.
        source: io::Error,
    },
    /// This process has no memory or no descriptor left for the arguments.
    #[error("cannot hand arguments over to the worker process of the function")]
    Arguments(#[source] io::Error),
    /// The worker ended.
    #[error("the worker process of the function {0}")]
    Lost(String),
    /// The worker answered something that makes no sense.
    #[error("the worker process of the function gave an answer that cannot be read: {0}")]
    Answer(String),
    /// The function raised an exception, or cannot be loaded. Pickled.
    #[error("the function raised an exception")]
    Raised(Vec<u8>),
    /// The function returned something that cannot be a field. The pickled exception tells what.
    #[error("the function returned a value that cannot be used")]
    Unusable(Vec<u8>),
}

impl FunctionPool {
    /// A pool without workers. They start when they are needed.
    pub fn new(command: FunctionCommand) -> Self {
        Self { command, idle: Mutex::default() }
    }

    /// Calls the function in a worker.
    pub fn call(&self, call: &FunctionCall<'_>, cancel: &Cancel) -> Result<Vec<FunctionValue<'static>>, FunctionError> {
        let idle = self.idle.lock().pop();
        let mut worker = match idle {
            Some(worker) => worker,
            None => FunctionWorker::start(&self.command, cancel)?,
        };
        let result = worker.call(call, cancel);
        // After any other error the next reply of the worker might belong to this call.
        if matches!(result, Ok(_) | Err(FunctionError::Raised(_) | FunctionError::Unusable(_))) {
            self.idle.lock().push(worker);
        }
        result
    }

    /// Ends all idle workers. Those that work end with their pool.
    pub fn release(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        // All sockets are closed first, so that the workers end at the same time.
        for worker in &idle {
            worker.link.end();
        }
    }
}

/// A process that calls the function.
#[derive(Debug)]
struct FunctionWorker {
    link: Link,
    process: Child,
    /// Memory for arguments, which the worker maps, and its size.
    inbox: Option<(File, usize)>,
}

impl FunctionWorker {
    /// Starts a process and waits until it has loaded the function.
    fn start(command: &FunctionCommand, cancel: &Cancel) -> Result<Self, FunctionError> {
        let (program, arguments) = command.program.split_first().expect("a command has a program");
        let start = || -> io::Result<Self> {
            let (ours, theirs) = UnixStream::pair()?;
            let mut process = Command::new(program);
            process.args(arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
            Ok(Self { process: process.spawn()?, link: Link::new(ours), inbox: None })
        };
        let mut worker = start().map_err(|source| FunctionError::Start { program: program.clone(), source })?;
        worker.link.frame = frame::call_frame(&command.function);
        let answer = worker.link.ask(None, &|| cancel.is_cancelled()).map(frame::read_result);
        match answer.map_err(|error| worker.error(error))? {
            Ok((true, _)) => Ok(worker),
            Ok((false, exception)) => Err(FunctionError::Raised(exception)),
            Err(problem) => Err(FunctionError::Answer(problem)),
        }
    }

    fn call(&mut self, call: &FunctionCall<'_>, cancel: &Cancel) -> Result<Vec<FunctionValue<'static>>, FunctionError> {
        let is_new = self.put_arguments(call).map_err(FunctionError::Arguments)?;
        match self.ask(is_new, cancel).map_err(|error| self.error(error))? {
            FunctionReply::Returned(values) => values
                .into_iter()
                .map(|value| self.read(value))
                .collect::<Result<_, _>>()
                .map_err(|error| self.error(error)),
            FunctionReply::Raised(exception) => Err(FunctionError::Raised(exception)),
            FunctionReply::Unusable(exception) => Err(FunctionError::Unusable(exception)),
        }
    }

    /// Writes the arguments into the inbox, and the call into the frame. Returns whether the inbox is new.
    fn put_arguments(&mut self, call: &FunctionCall<'_>) -> io::Result<bool> {
        let (places, bytes) = call_frame(call, &mut self.link.frame);
        let has = self.inbox.as_ref().map_or(0, |(_, has)| *has);
        let is_new = has < bytes || self.inbox.is_none();
        let inbox = match self.inbox.take() {
            Some(inbox) if !is_new => inbox,
            _ => new_inbox(bytes.max(2 * has))?,
        };
        for (content, place) in contents(call).zip(places) {
            inbox.0.write_all_at(content, place as u64)?;
        }
        self.inbox = Some(inbox);
        Ok(is_new)
    }

    fn ask(&mut self, is_new: bool, cancel: &Cancel) -> Result<FunctionReply, LinkError> {
        let inbox = self.inbox.as_ref().filter(|_| is_new).map(|(inbox, _)| inbox.as_fd());
        let body = self.link.ask(inbox, &|| cancel.is_cancelled())?;
        read_reply(body).map_err(LinkError::Answer)
    }

    fn read(&self, value: Returned) -> Result<FunctionValue<'static>, LinkError> {
        let content = if value.len == 0 { Vec::new() } else { self.link.payload(value.offset, value.len)? };
        value.value(content).map_err(LinkError::Answer)
    }

    fn error(&mut self, error: LinkError) -> FunctionError {
        match error {
            LinkError::Cancelled => FunctionError::Cancelled,
            LinkError::Answer(problem) => FunctionError::Answer(problem),
            LinkError::Lost(_) => {
                let status = self.wait(EXIT_TIME);
                FunctionError::Lost(status.map_or_else(|| "closed its connection".to_owned(), ended))
            }
        }
    }

    /// Waits for the end of the process. `None` if it still runs after `limit`.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for FunctionWorker {
    fn drop(&mut self) {
        self.link.end();
        if self.wait(GRACE).is_none() {
            // It runs user code. An error means that it has just ended.
            self.process.kill().unwrap_or_default();
            if let Err(error) = self.process.wait() {
                tracing::warn!(%error, "cannot wait for the worker process of a function");
            }
        }
    }
}

fn new_inbox(bytes: usize) -> io::Result<(File, usize)> {
    let file = File::from(memfd_create("feedline-inbox", MemfdFlags::CLOEXEC)?);
    // An empty file cannot be mapped.
    let bytes = bytes.max(1 << 12);
    file.set_len(bytes as u64)?;
    Ok((file, bytes))
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(9), _) => "was killed by signal 9 (perhaps by the kernel, for lack of memory)".to_owned(),
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
