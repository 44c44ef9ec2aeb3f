//! Forwards log events of the engine to Python's `logging`, under the name "feedline".
//!
//! Engine threads only append events to a bounded queue. A thread that is attached to the interpreter anyway passes them on. So no
//! engine thread waits for Python because of a log line.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::Once;

use feedline_memory::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Upper limit of queued events. Beyond it the oldest are dropped.
const MAX_EVENTS: usize = 1000;

static EVENTS: Mutex<VecDeque<(u8, String)>> = Mutex::new(VecDeque::new());
static INSTALLED: Once = Once::new();

/// Starts to collect events, once per process. A subscriber that the process has already installed stays.
pub(crate) fn install() {
    INSTALLED.call_once(|| {
        if tracing::subscriber::set_global_default(Bridge).is_err() {
            tracing::debug!("another subscriber is installed; events go there");
        }
    });
}

/// Passes queued events to Python's logging.
pub(crate) fn forward(py: Python<'_>) -> PyResult<()> {
    // `try_lock`, because in a forked child the lock may be held by a thread that does not exist there.
    let Some(mut waiting) = EVENTS.try_lock() else { return Ok(()) };
    let events = std::mem::take(&mut *waiting);
    // Released before Python is called, whose handlers may log through this bridge again.
    drop(waiting);
    if events.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("feedline",))?;
    for (level, text) in events {
        // As an argument of "%s", so that a percent sign in the text is not taken for a format.
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
            // The numbers of Python's logging levels.
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => 10,
        };
        // Dropping an event is better than blocking an engine thread.
        let Some(mut events) = EVENTS.try_lock() else { return };
        if events.len() == MAX_EVENTS {
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
        written.expect("writing to a String cannot fail");
    }
}
