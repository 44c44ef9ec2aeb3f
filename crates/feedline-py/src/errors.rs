//! Errors of the engine become the exception classes of `feedline.errors`.

use std::error::Error as StdError;
use std::fmt;

use feedline_data::failure::{SampleFailure, chain};
use feedline_data::op::OpError;
use feedline_data::plan::PlanError;
use feedline_data::source::SourceError;
use feedline_data::store::StoreError;
use feedline_engine::error::Error;
use feedline_engine::supply::MakeError;
use feedline_net::worker::WorkerException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

/// An exception class of the package.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("feedline.errors")?.getattr(name)?.cast_into::<PyType>()?)
}

/// An exception of a class of the package. If the class cannot be imported, that error.
pub(crate) fn raise(py: Python<'_>, name: &str, text: String) -> PyErr {
    match class(py, name) {
        Ok(class) => PyErr::from_type(class, text),
        Err(error) => error,
    }
}

/// The exception for a plan that cannot be used.
pub(crate) fn plan_error(py: Python<'_>, error: &PlanError) -> PyErr {
    let name = match error {
        PlanError::Source(SourceError::Store(StoreError::NotFound { .. })) => "SourceNotFoundError",
        PlanError::Source(_) => "SourceError",
        _ => "PlanError",
    };
    raise(py, name, chain(error))
}

/// The exception for a source that cannot be opened.
pub(crate) fn source_error(py: Python<'_>, error: SourceError) -> PyErr {
    plan_error(py, &error.into())
}

/// The exception for an error of a running loader.
pub(crate) fn run_error(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Sample(failure) => sample_error(py, failure).unwrap_or_else(|error| error),
        Error::TooManyFailures { source, .. } => {
            let raised = raise(py, "TooManyFailuresError", error.to_string());
            // Python shows the failed sample as the cause of the exception (`__cause__`).
            raised.set_cause(py, sample_error(py, source).ok());
            raised
        }
        Error::Ragged(_) => raise(py, "RaggedError", chain(error)),
        Error::Closed => raise(py, "ClosedError", chain(error)),
        Error::State(_) => raise(py, "StateError", chain(error)),
        Error::Superseded => raise(py, "SupersededError", chain(error)),
        Error::OutOfMemory { .. } | Error::NoSegment { .. } | Error::SharedMemory { .. } | Error::NodeFull { .. } => {
            raise(py, "OutOfMemoryError", chain(error))
        }
        Error::Carousel(cause) => run_error(py, cause),
        Error::Node { .. } | Error::Attach { .. } => raise(py, "NodeError", chain(error)),
        Error::Batch { source, .. } => {
            let raised = raise(py, "FeedlineError", chain(error));
            raised.set_cause(py, map_failure(&**source).map(|map| map.error.clone_ref(py)));
            raised
        }
        Error::Unproducible(_)
        | Error::Production { .. }
        | Error::Panicked
        | Error::Thread(_)
        | Error::ArrivalLog { .. } => raise(py, "FeedlineError", chain(error)),
    }
}

fn sample_error(py: Python<'_>, failure: &SampleFailure) -> PyResult<PyErr> {
    // The arguments of `SampleError` in `python/feedline/errors.py`, in order.
    let exception = class(py, "SampleError")?.call1((
        chain(failure),
        failure.id.0,
        failure.key.as_str(),
        failure.path.as_deref(),
        failure.op.as_deref(),
        chain(&*failure.cause),
    ))?;
    let cause: &(dyn StdError + 'static) = &*failure.cause;
    // Python turns these into the exception of the dataset, or into an error about the worker.
    if let Some(WorkerException { pickled, .. }) = cause.downcast_ref() {
        exception.setattr("pickled", PyBytes::new(py, pickled))?;
    }
    if let Some(MakeError::WorkerLost { worker, .. }) = cause.downcast_ref() {
        exception.setattr("worker", worker)?;
    }
    let raised = PyErr::from_value(exception);
    if let Some(map) = map_failure(&*failure.cause) {
        raised.set_cause(py, Some(map.error.clone_ref(py)));
    }
    Ok(raised)
}

/// The Python exception behind a failure, if a user's function raised it.
fn map_failure<'a>(cause: &'a (dyn StdError + Send + Sync + 'static)) -> Option<&'a MapFailed> {
    match (cause as &(dyn StdError + 'static)).downcast_ref::<OpError>()? {
        OpError::Foreign(foreign) => foreign.downcast_ref(),
        _ => None,
    }
}

/// A Python exception of a user's function, as the error of an op. It travels through the engine to the trainer.
#[derive(Debug)]
pub(crate) struct MapFailed {
    error: PyErr,
    text: String,
}

impl fmt::Display for MapFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for MapFailed {}

impl MapFailed {
    /// The error of a function that raised.
    pub(crate) fn raised(py: Python<'_>, error: PyErr) -> OpError {
        let name = error.get_type(py).name().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
        let text = format!("the function raised {name}: {}", error.value(py));
        OpError::Foreign(Box::new(Self { error, text }))
    }

    /// The error of a function that returned something that cannot be a field.
    pub(crate) fn returned(py: Python<'_>, error: PyErr) -> OpError {
        let text = format!("the function returned a value that cannot be used: {}", error.value(py));
        OpError::Foreign(Box::new(Self { error, text }))
    }
}
