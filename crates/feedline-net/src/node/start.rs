//! Attaches to the node of a machine, and starts one if there is none.
//!
//! Several jobs may start one at the same time. The first to take the socket stays, the others end, and all jobs attach to it.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::attached::AttachError;
use super::socket::SocketError;

/// How long a node may take to start.
const START_TIME: Duration = Duration::from_secs(30);
/// Interval between two attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Attaches to the node at `socket`. If there is none, `command` starts it as a process that outlives this one.
pub fn attach_or_start<T>(
    socket: &Path,
    command: &[String],
    attach: impl Fn(&Path) -> Result<T, AttachError>,
) -> Result<T, AttachError> {
    let deadline = Instant::now() + START_TIME;
    let mut started: Option<Child> = None;
    loop {
        let problem = match attach(socket) {
            Ok(attached) => {
                if let Some(child) = started {
                    wait_for(child);
                }
                return Ok(attached);
            }
            // A node that is about to end may have accepted the connection.
            Err(problem @ (AttachError::NodeSocket(SocketError::Nobody { .. }) | AttachError::Wire { .. })) => problem,
            Err(problem) => return Err(problem),
        };
        if Instant::now() > deadline {
            return Err(problem);
        }
        // A started node that lost the race for the socket ends at once. Then another one is started, in case the winner is gone
        // too.
        let has_ended = match &mut started {
            None => true,
            // An error of `try_wait` means that there is no such child any more.
            Some(child) => child.try_wait().map_or(true, |status| status.is_some()),
        };
        if has_ended {
            if let Some(reason) = started.take().and_then(reason_of) {
                return Err(AttachError::Start { socket: socket.to_owned(), reason });
            }
            let child = start(command).map_err(|error| AttachError::Start {
                socket: socket.to_owned(),
                reason: format!("{command:?}: {error}"),
            })?;
            started = Some(child);
        }
        thread::sleep(TRY_EVERY);
    }
}

fn start(command: &[String]) -> io::Result<Child> {
    use std::os::unix::process::CommandExt as _;
    let (program, arguments) = command.split_first().expect("a command has a program");
    // A process group of its own, so that signals to the job do not reach the node.
    Command::new(program)
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Why a node ended at once, unless another one was faster.
fn reason_of(mut child: Child) -> Option<String> {
    let status = child.wait().ok()?;
    let mut output = String::new();
    child.stderr.take()?.read_to_string(&mut output).ok()?;
    let is_taken = output.contains("another node listens");
    (!status.success() && !is_taken).then(|| output.trim().to_owned())
}

/// Drains the node's output, so that it never blocks, and reaps the process when it ends.
fn wait_for(mut child: Child) {
    let waiting = thread::Builder::new().name("feedline-node-end".to_owned()).spawn(move || {
        let output = child.stderr.take().map(|mut output| io::copy(&mut output, &mut io::sink()));
        if let (Some(Err(error)), _) | (_, Err(error)) = (output, child.wait()) {
            tracing::debug!(%error, "could not wait for the node to end");
        }
    });
    if let Err(error) = waiting {
        tracing::debug!(%error, "could not start the thread that waits for the node");
    }
}
