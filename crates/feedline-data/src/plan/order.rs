//! The order of delivery: everything that the rest of a plan needs to know about each order.
//!
//! To add an order that is computed before a run, add a variant and its rule here. The rule is a pure function of costs. A long
//! one belongs into `feedline-order`.

use feedline_order::planned_order;
use serde::{Deserialize, Serialize};

/// The order in which batches are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Order {
    /// The sampler's order, whatever finishes first.
    #[default]
    Strict,
    /// Slow samples come later, decided by a simulation with the same result on every machine.
    Planned,
    /// The sample that is ready first comes first.
    Arrival,
}

/// Computes an order of delivery. Its arguments are the cost of each sample of a share and the largest displacement. Its result is
/// the sample at each turn.
pub(super) type OrderRule = fn(&[u64], u64) -> Vec<u32>;

impl Order {
    /// The rule of an order that is computed before a run. `None` if there is nothing to compute.
    pub(super) fn rule(self) -> Option<OrderRule> {
        match self {
            Self::Planned => Some(planned_order),
            Self::Strict | Self::Arrival => None,
        }
    }

    /// Whether the order is decided while the plan runs. Such an order can be logged and replayed.
    pub fn is_decided_while_running(self) -> bool {
        match self {
            Self::Arrival => true,
            Self::Strict | Self::Planned => false,
        }
    }
}
