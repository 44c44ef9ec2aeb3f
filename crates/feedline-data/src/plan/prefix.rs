//! The part of a plan that a storage server can do.
//!
//! In: a plan. Out: a document of its source and its first ops, which the server opens with its own registry. Always true: a sample
//! that is prepared up to a cut on the server and from there on the client has the same bytes as one prepared by the client alone
//! (law 1).

use std::sync::Arc;

use super::{Document, Plan, PlanError, Registry, RunConfig, Settings};
use crate::batch::{FieldTypes, Kind};
use crate::cut::Cut;
use crate::dtype::array_bytes;
use crate::op::{PlannedOp, UnwritableOp};
use crate::source::{Source, listing_hash};
use crate::store::{Form, Packing, Prefix};

/// Upper limit of ops that a server accepts.
const MAX_OPS: usize = 100;
/// Upper limit of an array that a server prepares, in bytes.
const MAX_ARRAY_BYTES: usize = 256 << 20;

impl Plan {
    /// The part that a server can do. Fails if the source cannot be written down.
    pub fn prefix(&self) -> Result<Prefix, PlanError> {
        let mut source: &dyn Source = &**self.source();
        // The server opens the whole source. A subset keeps the ids of its parent, so requests need no translation.
        while let Some(parent) = source.parent() {
            source = parent;
        }
        let movable = self.ops().iter().take_while(|op| op.op().runs_anywhere());
        let ops = movable.map(PlannedOp::table).collect::<Result<Vec<_>, _>>()?;
        // The server returns each loaded field as it is at the cut, each with its own shape: hence `ragged`.
        let fields: Vec<String> = self.loaded().iter().map(|(name, _)| name.to_string()).collect();
        let settings = Settings {
            seed: self.settings().seed,
            fields: Some(fields.clone()),
            ragged: fields,
            // The server prepares single samples with ids from the client. Order, batches and ranks are not its business.
            ..Settings::of_batches(1)
        };
        let config = RunConfig { seek_index: self.config().seek_index, ..RunConfig::default() };
        let forms = self.forms(ops.len());
        let text = Document { source: source.spec()?, ops, settings, config }.to_toml();
        let listing = listing_hash(source);
        Ok(Prefix { number: Prefix::number_of(&text, listing), text, listing, forms })
    }

    /// The forms of a sample, if the first `sent` ops can run on the server.
    fn forms(&self, sent: usize) -> Vec<Form> {
        // The result of a decoder may depend on a later op. Then the server must know that op too.
        let needs_local_op = |(number, op): (usize, &PlannedOp)| {
            let mut decoded = op.op().on().names().filter(|name| op.op().decoding(name).is_some_and(|it| it.fast));
            decoded.any(|name| self.next_on(name, number + 1).is_some_and(|next| next >= sent))
        };
        let last = self.ops()[..sent].iter().enumerate().position(needs_local_op).unwrap_or(sent);
        let can_trim = self.loaded().iter().any(|(name, _)| {
            self.chain().decoder_of(name).is_some_and(|(decoder, _)| {
                decoder < last && self.next_on(name, decoder + 1).is_some_and(|next| next < sent)
            })
        });
        let packed = |cut, is_trimmed| Packing::ALL.map(|packing| Form { cut: Cut(cut), is_trimmed, packing });
        // Volumes have no record format. They are sent as they are stored.
        let mut forms = if self.loads_volumes() { vec![Form::RAW] } else { packed(0, false).to_vec() };
        if can_trim {
            forms.push(Form { is_trimmed: true, ..Form::RAW });
        }
        forms.extend((1..=last).flat_map(|cut| [packed(cut, false), packed(cut, true)].concat()));
        forms
    }

    /// The name of a form in snapshots and reports.
    pub fn form_name(&self, form: Form) -> String {
        let state = match form.cut.0.checked_sub(1) {
            None if form.is_trimmed && self.is_approximate() => "trimmed, fewer coefficients".to_owned(),
            None if form.is_trimmed => "trimmed".to_owned(),
            None => "raw".to_owned(),
            Some(last) => format!("after {}", self.ops()[last].name()),
        };
        match form.packing {
            Packing::Plain => state,
            Packing::Lz4 => format!("{state}, lz4"),
            Packing::Zstd => format!("{state}, zstd"),
        }
    }

    /// The number of the next op on a field, from op `first` on.
    fn next_on(&self, field: &str, first: usize) -> Option<usize> {
        let mut later = self.ops().iter().enumerate().skip(first);
        later.find(|(_, op)| op.op().on().names().any(|name| name == field)).map(|(number, _)| number)
    }

    /// The first cut at which every loaded field has one shape for all samples.
    pub fn fixed_cut(&self) -> Option<Cut> {
        let mut types = self.source().fields();
        let is_fixed = |types: &FieldTypes| {
            self.loaded().iter().all(|(name, _)| types.get(name).is_some_and(|kind| kind.fixed().is_some()))
        };
        for (number, op) in self.ops().iter().enumerate() {
            op.op().check(&mut types).ok()?;
            if is_fixed(&types) {
                return Some(Cut(number + 1));
            }
        }
        None
    }

    /// Whether volumes are loaded.
    pub fn loads_volumes(&self) -> bool {
        self.loaded().iter().any(|(_, kind)| matches!(kind, Kind::Volume(_)))
    }

    /// Whether pixels may be approximate.
    pub fn is_approximate(&self) -> bool {
        self.ops().iter().any(PlannedOp::is_approximate)
    }

    /// Opens a document that [`Plan::prefix`] wrote. `open` opens its source. The document may come from a hostile client: its
    /// paths and sizes are limited by `registry` and by fixed limits.
    pub fn open_prefix(
        text: &str,
        registry: &Registry,
        open: impl FnOnce(toml::Table) -> Result<Arc<dyn Source>, PlanError>,
    ) -> Result<Self, PlanError> {
        let Document { source, ops, settings, config } = Document::parse(text)?;
        let source = open(source)?;
        let ops = ops.into_iter().map(|table| registry.build_op(table)).collect::<Result<Vec<_>, _>>()?;
        if ops.len() > MAX_OPS {
            return Err(PlanError::TooLarge(format!(
                "{} ops are too many; a storage server accepts at most {MAX_OPS}",
                ops.len()
            )));
        }
        if let Some(op) = ops.iter().find(|op| !op.op().runs_anywhere()) {
            let (op, why) = (op.name().to_string(), "it is not for other machines".to_owned());
            return Err(UnwritableOp { op, why }.into());
        }
        check_sizes(&*source, &ops)?;
        // Only what a server needs is taken over from the document. Everything else has its default, whatever the client wrote.
        let Settings { seed, fields, ragged, .. } = settings;
        let settings = Settings { seed, fields, ragged, ..Settings::of_batches(1) };
        let config = RunConfig { seek_index: config.seek_index, ..RunConfig::default() };
        Self::new(source, ops, settings, config)
    }
}

/// Rejects ops whose results are too large for a server.
fn check_sizes(source: &dyn Source, ops: &[PlannedOp]) -> Result<(), PlanError> {
    let mut types: FieldTypes = source.fields();
    for op in ops {
        // Sizes are checked after each op, because a later op may make the result small again.
        op.check(&mut types, &[])?;
        for (field, kind) in types.iter() {
            let bytes = kind.fixed().map(|(dtype, shape)| array_bytes(dtype, &shape).unwrap_or(usize::MAX));
            if let Some(bytes) = bytes.filter(|&bytes| bytes > MAX_ARRAY_BYTES) {
                return Err(PlanError::TooLarge(format!(
                    "{} makes {field:?} {bytes} bytes large, but a storage server prepares arrays of at most {MAX_ARRAY_BYTES}",
                    op.name()
                )));
            }
        }
    }
    Ok(())
}
