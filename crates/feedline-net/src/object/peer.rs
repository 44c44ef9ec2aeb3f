//! A bucket, container or server: its client, and the threads for its requests.
//!
//! In: a future with a request. Out: its result, to a waiting thread or to a callback. A forked process has a copy of the client
//! but not its threads. It creates both again at its first request.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fmt, io};

use feedline_data::store::{Fetch, StoreError};
use feedline_memory::Mutex;
use object_store::ObjectStore;
use tokio::runtime::{Builder, Runtime};

use super::client::{Scheme, client};
use super::problem::Problems;

/// Threads that send and receive. They mostly wait.
const THREADS: usize = 2;

/// A bucket, container or server.
#[derive(Debug)]
pub(super) struct Peer {
    /// The URL up to the bucket or host.
    pub root: String,
    pub scheme: Scheme,
    pub retry_time: Duration,
    talk: Mutex<Arc<Talk>>,
}

/// The client and its threads, in the process that created them.
pub(super) struct Talk {
    process: u32,
    client: Option<Arc<dyn ObjectStore>>,
    runtime: Option<Runtime>,
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let (client, runtime) = (self.client.take(), self.runtime.take());
        if self.process != std::process::id() {
            // The threads belong to the parent process. Joining them here would block for ever.
            std::mem::forget((client, runtime));
        } else if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Peer {
    /// Creates the client and the threads without sending anything.
    pub(super) fn open(root: &str, scheme: Scheme, retry_time: Duration) -> Result<Self, StoreError> {
        let talk = Mutex::new(Arc::new(Talk::new(root, scheme, retry_time)?));
        Ok(Self { root: root.to_owned(), scheme, retry_time, talk })
    }

    /// Explains errors about an address.
    pub(super) fn problems(&self, address: String) -> Problems {
        Problems { address, scheme: self.scheme, retry_time: self.retry_time }
    }

    /// Runs the future of `ask` and blocks until it is done.
    pub(super) fn wait<T, F>(&self, ask: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, answer) = mpsc::channel();
        // The fetch is kept until the answer is here: dropping it would cancel the request.
        let _fetch = self.talk()?.begin(|client| {
            let asked = ask(client);
            async move { drop(sender.send(asked.await)) }
        });
        let ended = || StoreError::Content { path: self.root.clone(), problem: "was closed during a read".to_owned() };
        answer.recv().map_err(|_| ended())
    }

    /// The client and its threads, created again in a forked process.
    pub(super) fn talk(&self) -> Result<Arc<Talk>, StoreError> {
        let mut talk = self.talk.lock();
        // After a fork the child has the client, but its runtime has no threads. Requests would never be sent.
        if talk.process != std::process::id() {
            *talk = Arc::new(Talk::new(&self.root, self.scheme, self.retry_time)?);
        }
        Ok(Arc::clone(&talk))
    }
}

impl Talk {
    /// Runs the future of `ask` until it is done or the fetch is dropped.
    pub(super) fn begin<F>(&self, ask: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> Fetch
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let parts = self.client.as_ref().zip(self.runtime.as_ref());
        let (client, runtime) = parts.expect("both are there until it is dropped");
        let task = runtime.spawn(ask(Arc::clone(client))).abort_handle();
        Fetch::new(move || task.abort())
    }

    fn new(root: &str, scheme: Scheme, retry_time: Duration) -> Result<Self, StoreError> {
        let problems = Problems { address: root.to_owned(), scheme, retry_time };
        let client = client(root, scheme, retry_time).map_err(|error| problems.of_client(error))?;
        let threads =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("feedline-net").enable_all().build();
        let read = |source: io::Error| StoreError::Read { path: root.to_owned(), source };
        Ok(Self { process: std::process::id(), client: Some(client), runtime: Some(threads.map_err(read)?) })
    }
}
