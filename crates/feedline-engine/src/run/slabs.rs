//! The memory that new batches of a run get.
//!
//! In: the layout of the plan, and later perhaps another one: the arrays of a Python dataset are known only once the first sample
//! was made. Out: a pool for batches of the current layout. Batches that are open keep the layout they were opened with.

use std::sync::Arc;

use feedline_data::batch::BatchLayout;
use feedline_data::plan::Plan;
use feedline_memory::{Pool, Sharing};

/// A layout, and a pool of slabs for it.
#[derive(Clone, Debug)]
pub(super) struct Slabs {
    pub layout: Arc<BatchLayout>,
    pub pool: Pool,
    max_spare: usize,
    /// Whether another run uses the pool after this one.
    is_left: bool,
}

impl Slabs {
    /// Slabs with the layout of a plan, from `pool` or from the heap.
    pub(super) fn of_plan(plan: &Plan, pool: Option<Pool>, max_spare: usize) -> Self {
        let layout = Arc::new(plan.layout().clone());
        let pool = pool.unwrap_or_else(|| Pool::new(layout.slab().clone(), max_spare));
        Self { layout, pool, max_spare, is_left: false }
    }

    /// Returns the pool, for the run that replaces this one.
    pub(super) fn leave(&mut self) -> Pool {
        self.is_left = true;
        self.pool.clone()
    }

    /// Frees unused memory, unless another run got the pool.
    pub(super) fn end(&self) {
        if !self.is_left {
            self.pool.stop_reuse();
        }
    }

    /// Switches to another layout. Other processes may write to its leaves.
    pub(super) fn change_layout(&mut self, layout: Arc<BatchLayout>) {
        if !Arc::ptr_eq(&self.layout, &layout) {
            // Workers write to leaves only.
            let sharing = if layout.leaves().is_empty() { Sharing::Private } else { Sharing::Writers };
            self.pool.stop_reuse();
            self.pool = Pool::with_sharing(layout.slab().clone(), self.max_spare, sharing);
            self.layout = layout;
        }
    }

    /// Bytes of one slab.
    pub(super) fn slab_bytes(&self) -> u64 {
        self.layout.slab().total_bytes() as u64
    }
}
