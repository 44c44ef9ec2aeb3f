//! A shared job in Rust: it reads an epoch of a plan from the node of this machine, beside jobs of any framework.
//!
//! ```sh
//! feedline node --socket /tmp/mine/node.sock &
//! cargo run --release -p feedline-net --example shared_job -- plan.toml /tmp/mine/node.sock
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::failure::chain;
use feedline_data::plan::{Document, Plan, Registry};
use feedline_engine::error::Error as RunError;
use feedline_engine::loader::{Feed, Loader, Next};
use feedline_engine::machine::CoreWeight;
use feedline_engine::state::JobProgress;
use feedline_net::node::NodeFeed;

/// Interval at which it could check something else, such as an interrupt.
const TURN: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plan, socket] = arguments.as_slice() else { return Err("usage: shared_job PLAN.toml SOCKET".into()) };
    let Epoch { samples, bytes, time } = read_epoch(Path::new(plan), Path::new(socket))?;
    let rate = samples as f64 / time.as_secs_f64();
    println!("{samples} samples, {:.1} MB, {rate:.0} samples/s", bytes as f64 / 1e6);
    Ok(())
}

/// The result of an epoch.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// Samples of all batches.
    pub samples: usize,
    /// Bytes of all their fields.
    pub bytes: usize,
    /// Time from the first request to the last batch.
    pub time: Duration,
}

/// Reads one epoch of a plan from the node at `socket`.
pub(crate) fn read_epoch(plan: &Path, socket: &Path) -> Result<Epoch, Box<dyn Error>> {
    let document = Document::parse(&std::fs::read_to_string(plan)?)?;
    let plan = Arc::new(document.open(&Registry::core())?);
    let loader = attach(&plan, socket)?;
    let (began, mut samples, mut bytes) = (Instant::now(), 0, 0);
    let epoch = loader.begin()?;
    loop {
        while !loader.wait_within(epoch, TURN)? {}
        match loader.take(epoch)? {
            Next::Batch(batch) => {
                samples += batch.len;
                // The memory belongs to the node and is returned when the batch is dropped.
                bytes += batch.fields.iter().map(|field| field.data.bytes().len()).sum::<usize>();
            }
            Next::End => return Ok(Epoch { samples, bytes, time: began.elapsed() }),
            Next::NotYet => {}
        }
    }
}

/// A loader that attaches to the node at its first request. Without a fallback, a lost node is an error.
fn attach(plan: &Arc<Plan>, socket: &Path) -> Result<Loader, RunError> {
    let (attaching, socket) = (Arc::clone(plan), socket.to_owned());
    let connect = Box::new(move |job_progress: &JobProgress| {
        let feed = NodeFeed::attach(&socket, &attaching, job_progress, CoreWeight::ONE);
        feed.map(|feed| Arc::new(feed) as Arc<dyn Feed>).map_err(|error| RunError::Attach { reason: chain(&error) })
    });
    Loader::shared(plan, connect, None)
}
