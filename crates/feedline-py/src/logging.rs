//! Events of the engine reach Python's `logging` under the name "feedline".
//!
//! Engine threads only put events on a bounded queue; a thread that is attached to the interpreter anyway hands them
//! over. So no engine thread ever waits for Python because of a log line.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::Once;

use feedline_memory::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Events kept while nobody takes them; older ones are dropped.
const KEPT: usize = 1000;

static EVENTS: Mutex<VecDeque<(u8, String)>> = Mutex::new(VecDeque::new());
static INSTALLED: Once = Once::new();

/// Begins to collect events, once; a subscriber that the process has set already stays.
pub(crate) fn install() {
    INSTALLED.call_once(|| {
        if tracing::subscriber::set_global_default(Bridge).is_err() {
            tracing::debug!("another subscriber is installed; events go there");
        }
    });
}

/// Hands collected events to Python's logging.
pub(crate) fn hand_over(py: Python<'_>) -> PyResult<()> {
    // Tried, not waited for: after a fork the lock may be held by a thread that does not exist.
    let Some(mut waiting) = EVENTS.try_lock() else { return Ok(()) };
    let events = std::mem::take(&mut *waiting);
    drop(waiting);
    if events.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("feedline",))?;
    for (level, text) in events {
        logger.call_method1("log", (level, "%s", text))?;
    }
    Ok(())
}

struct Bridge;

impl Subscriber for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.target().starts_with("feedline")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => 10,
        };
        let Some(mut events) = EVENTS.try_lock() else { return };
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back((level, format!("{}{}", text.message, text.fields)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message, then the fields as `name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("a string grows");
    }
}
