//! The synchronisation primitives of slabs; `loom/` replaces them.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use crate::lock::Mutex;
