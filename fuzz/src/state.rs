//! Saved states. Any bytes are refused, or lead to a place in the stream from which batches are delivered.

use std::sync::{Arc, LazyLock};

use feedline_data::plan::Plan;
use feedline_data::testing::open;
use feedline_engine::loader::Loader;
use feedline_engine::state::{Cursor, SavedState};
use feedline_order::ShareIndex;

use crate::running;

static PLANS: LazyLock<Vec<Arc<Plan>>> = LazyLock::new(|| {
    let of = |settings: &str| {
        open(&format!("batch_size = 3\n{settings}\n[source]\nkind = \"synthetic\"\nn = 20\nshape = [4]\n"))
            .expect("a valid plan")
    };
    vec![
        of(""),
        of("shuffle = true\ndrop_last = true"),
        of("order = \"planned\"\nmax_displacement = 4"),
        of("order = \"arrival\"\nmax_displacement = 4"),
        of("sampler = { kind = \"list\", indices = [0, 2, 1, 1, 19, 3, 3] }"),
    ]
});

/// Loads the state into a loader of each plan.
pub fn run(data: &[u8]) {
    let Ok(state) = serde_json::from_slice::<SavedState>(data) else { return };
    for plan in PLANS.iter() {
        let loader = Loader::new(Arc::clone(plan), &running::machine());
        if loader.load_state(&state).is_ok() {
            let saved = loader.state();
            assert!(loader.load_state(&saved).is_ok(), "what was loaded is saved: {saved:?}");
            running::take_batches(&loader);
        }
    }
}

/// States of each plan at some places, also as in the middle of an arrival order.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut states = Vec::new();
    for plan in PLANS.iter() {
        for batches in [0, 1, 3] {
            states.push(Cursor { batches, ..Cursor::default() }.to_state(plan));
            let mut pending = Cursor { batches, ..Cursor::default() }.to_state(plan);
            pending.delivery = feedline_engine::state::Delivery::Any;
            (pending.rank, pending.pending) = (Some(0), vec![ShareIndex(0), ShareIndex(2)]);
            states.push(pending);
        }
    }
    states.iter().map(|state| serde_json::to_vec(state).expect("plain data")).collect()
}
