//! The order in which batches are delivered: all that the rest of a plan has to know of each.
//!
//! To add an order that is computed before a run, add a variant and its rule here. The rule is a function of costs, in
//! `feedline-order`.

use feedline_order::planned_order;
use serde::{Deserialize, Serialize};

/// The order in which batches are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Order {
    /// The sampler's order, whatever runs when.
    #[default]
    Strict,
    /// Slow samples come later, by a simulation that gives the same on every machine.
    Planned,
    /// What is ready first comes first.
    Arrival,
}

/// Computes an order of delivery: from the cost of each sample of a share and the largest displacement to the sample at each turn.
pub(super) type OrderRule = fn(&[u64], u64) -> Vec<u32>;

impl Order {
    /// The rule of an order that is computed before a run; none if there is nothing to compute.
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
