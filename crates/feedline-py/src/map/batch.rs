//! `ops.MapBatch`: a Python function on whole batches.

use std::borrow::Cow;
use std::error::Error as StdError;

use feedline_data::batch::{Batch, BatchField, FieldData};
use feedline_data::memory::Cancel;
use feedline_engine::loader::{BatchFunction, BatchPlace};
use feedline_net::worker::FunctionValue;
use feedline_order::Seed;
use feedline_order::random::{Purpose, StreamKey};

use super::function::{CallInfo, Function};
use super::parts::Settings;

/// A Python function on whole batches.
#[derive(Debug)]
pub(crate) struct MapBatch {
    function: Function,
    settings: Settings,
    seed: Seed,
    /// Its number among the functions on batches.
    number: u32,
}

impl MapBatch {
    pub(super) fn new(function: Function, settings: Settings, seed: Seed, number: u32) -> Self {
        Self { function, settings, seed, number }
    }
}

impl BatchFunction for MapBatch {
    fn apply(
        &self,
        mut batch: Batch,
        at: BatchPlace,
        cancel: &Cancel,
    ) -> Result<Batch, Box<dyn StdError + Send + Sync>> {
        let Settings { inputs, outputs, .. } = &self.settings;
        let values = inputs.names().map(|name| array_of(&batch, name)).collect::<Result<Vec<_>, _>>()?;
        let key = StreamKey::new(self.seed, at.epoch, Purpose::Batch(self.number));
        let seeds = [key.bits(at.place, 0, 0), key.bits(at.place, 0, 1)];
        let info = CallInfo { seeds, index: at.place, epoch: at.epoch.0, key: None };
        let results = self.function.call(&values, &info, cancel)?;
        drop(values);
        let is_output = |name: &str| outputs.names().any(|output| output == name);
        batch.fields.retain(|field| is_output(&field.name) || !inputs.names().any(|input| input == &*field.name));
        for (name, result) in outputs.names().zip(results) {
            let data = stacked(name, result, batch.len)?;
            match batch.fields.iter_mut().find(|field| &*field.name == name) {
                Some(field) => field.data = data,
                None => batch.fields.push(BatchField { name: name.into(), data }),
            }
        }
        Ok(batch)
    }

    fn release(&self) {
        self.function.release();
    }
}

/// The array of a field.
fn array_of<'a>(batch: &'a Batch, name: &str) -> Result<FunctionValue<'a>, String> {
    let fields = || batch.fields.iter().map(|field| format!("{:?}", field.name)).collect::<Vec<_>>().join(", ");
    let field = batch.fields.iter().find(|field| &*field.name == name);
    match &field.ok_or_else(|| format!("batches have no field {name:?}; they have {}", fields()))?.data {
        data @ (FieldData::Region { dtype, shape, .. } | FieldData::Stacked { dtype, shape, .. }) => {
            Ok(FunctionValue::Array { dtype: *dtype, shape: shape.clone(), bytes: Cow::Borrowed(data.bytes()) })
        }
        FieldData::List(_) => Err(format!("field {name:?} is a list, and ops.MapBatch takes arrays over all samples")),
    }
}

/// A result as the data of a field, after a check of its first side.
fn stacked(name: &str, result: FunctionValue<'static>, len: usize) -> Result<FieldData, String> {
    match result {
        FunctionValue::Array { dtype, shape, bytes } if shape.first() == Some(&len) => {
            Ok(FieldData::Stacked { dtype, shape, bytes: bytes.into_owned() })
        }
        FunctionValue::Array { shape, .. } => {
            Err(format!("the function returned an array of shape {shape:?} for {name:?}, but the batch has {len} samples"))
        }
        FunctionValue::Bytes(_) | FunctionValue::Text(_) => {
            Err(format!("the function returned bytes or text for {name:?}; ops.MapBatch takes arrays over all samples"))
        }
    }
}
