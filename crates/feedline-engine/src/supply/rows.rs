//! Samples that are only copied: the rows of an array in memory, and their labels.
//!
//! In: a plan. Out: if each of its fields is delivered as the source makes it, a way to fill many slots at once. A sample of a few
//! bytes takes less time than the steps of any other sample: memory of its own, a list of fields, clocks.
//!
//! Always true: the slots get the bytes that they would get one by one.

use feedline_data::batch::FieldForm;
use feedline_data::plan::{INDEX_FIELD, PADDED_FIELD, Plan};
use feedline_data::source::{Origin, Source};
use feedline_memory::SlotWriter;
use feedline_order::{Ordinal, Place, SampleId, SampleRequest};

/// The fields of samples that are only copied, each with its region of the slab.
#[derive(Debug)]
pub(super) struct Rows(Vec<(usize, Content)>);

/// The content of a field.
#[derive(Debug)]
enum Content {
    /// A field of the source.
    Made(String),
    Index,
    Padded,
}

impl Rows {
    /// The fields of a plan, if all of them are copied.
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        let source = plan.source();
        // Any sample shows whether its fields are stored or made. `fixed` excludes shapes that differ.
        let first = source.id_at(Ordinal(0));
        let is_made = |name: &str| {
            let is_fixed = plan.loaded().iter().any(|(field, kind)| **field == *name && kind.fixed().is_some());
            is_fixed && matches!(source.origin(first, name), Origin::Made)
        };
        let content = |(name, form): &(std::sync::Arc<str>, FieldForm)| {
            let FieldForm::Region { region, .. } = form else { return None };
            let content = match &**name {
                INDEX_FIELD => Content::Index,
                PADDED_FIELD => Content::Padded,
                name => Content::Made(is_made(name).then(|| name.to_owned())?),
            };
            Some((*region, content))
        };
        let is_plain = plan.ops().is_empty() && !source.is_empty() && plan.layout().leaves().is_empty();
        let fields = plan.layout().fields();
        let is_all_delivered = plan.loaded().iter().all(|(name, _)| fields.iter().any(|(field, _)| field == name));
        if !(is_plain && is_all_delivered) {
            return None;
        }
        fields.iter().map(content).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Fills the slots from `first` on.
    pub(super) fn fill(
        &self,
        source: &dyn Source,
        samples: &[(Place, SampleRequest)],
        first: usize,
        writer: &mut SlotWriter,
    ) {
        let ids: Vec<SampleId> = samples.iter().map(|(_, request)| request.id).collect();
        for (region, content) in &self.0 {
            let target = writer.slots_mut(*region, first..first + samples.len());
            match content {
                Content::Made(field) => source.make_each(&ids, field, target),
                Content::Index => {
                    let rows = target.as_chunks_mut().0.iter_mut();
                    rows.zip(&ids).for_each(|(row, id)| *row = (id.0 as i64).to_ne_bytes());
                }
                Content::Padded => {
                    target.iter_mut().zip(samples).for_each(|(row, (place, _))| *row = u8::from(place.is_padding));
                }
            }
        }
    }
}
