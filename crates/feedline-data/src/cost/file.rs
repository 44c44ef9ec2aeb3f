//! Saves learned costs.
//!
//! In: the costs of a run. Out: the same costs, for the next run of the same plan. Always true: a damaged or truncated file, or one
//! of another plan, gives nothing. Files are replaced as a whole.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::{Costs, Mean, Table, Workload, columns};
use crate::op::WorkHint;
use crate::private_files::{Access, CacheFolder, PrivateFolder, read_bounded, read_open};

/// The first bytes of a file. Changes with the format.
const MAGIC: [u8; 16] = *b"feedline costs 2";

/// Its folder in the cache folder.
const FOLDER: &str = "costs";

/// The file with the costs of a plan.
#[derive(Debug)]
pub struct CostFile(CostPath);

#[derive(Debug)]
enum CostPath {
    Cache { folder: CacheFolder, name: String },
    Named(PathBuf),
}

impl CostFile {
    /// Upper limit of a file.
    pub const MAX_BYTES: u64 = (1 << 20) + 2 * Table::MAX_ENTRIES;

    /// The file for this plan on this machine. Another processor has other costs.
    pub fn in_folder(cache_folder: &CacheFolder, work: &dyn Workload) -> Self {
        let machine = xxh3_64(machine().as_bytes());
        let name = format!("{}.{machine:016x}", work.fingerprint());
        Self(CostPath::Cache { folder: cache_folder.clone(), name })
    }

    /// A file at the user's path.
    pub fn at(path: &Path) -> Self {
        Self(CostPath::Named(path.to_owned()))
    }

    /// Reads the costs, if they belong to this plan.
    pub fn read(&self, work: &dyn Workload) -> Option<Costs> {
        let bytes = match &self.0 {
            CostPath::Cache { folder, name } => {
                let file = PrivateFolder::open(folder, Path::new(FOLDER)).ok()?.open_file(name, Access::Read).ok()?;
                read_open(&file, Self::MAX_BYTES).ok()?
            }
            CostPath::Named(path) => read_bounded(path, Self::MAX_BYTES).ok()?,
        };
        let costs = Costs::from_bytes(work, &bytes);
        if costs.is_none() {
            tracing::warn!(file = ?self.0, "the costs of earlier runs cannot be read, so costs are measured again");
        }
        costs
    }

    /// Replaces the file.
    pub fn write(&self, costs: &Costs, work: &dyn Workload) -> io::Result<()> {
        let bytes = costs.to_bytes(work);
        match &self.0 {
            CostPath::Cache { folder, name } => PrivateFolder::create(folder, Path::new(FOLDER))?.replace(name, &bytes),
            CostPath::Named(path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                fs::create_dir_all(folder)?;
                // Renamed into place, so that a reader or a kill never leaves half a file.
                let mut file = tempfile::NamedTempFile::new_in(folder)?;
                file.write_all(&bytes)?;
                file.persist(path).map_err(|error| error.error)?;
                Ok(())
            }
        }
    }
}

/// The processor model, and the number of threads that the process may use.
fn machine() -> String {
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find(|line| line.starts_with("model name")).unwrap_or(std::env::consts::ARCH);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model} {cores}")
}

impl Costs {
    fn means(&self) -> impl Iterator<Item = &Mean> {
        self.stages.iter().flat_map(|stage| WorkHint::ALL.map(|work_hint| stage.mean(work_hint))).chain([&self.sample])
    }

    /// All costs as bytes.
    pub fn to_bytes(&self, work: &dyn Workload) -> Vec<u8> {
        // Layout: magic 16, fingerprint 32 (hex), stages 4; sum 8 and count 8 of each mean; histogram; table if any; checksum
        // 16.
        let mut bytes = MAGIC.to_vec();
        bytes.extend(work.fingerprint().as_bytes());
        bytes.extend((self.stages.len() as u32).to_le_bytes());
        for mean in self.means() {
            let (nanos, count) = mean.parts();
            bytes.extend(nanos.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        bytes.extend(self.totals.counts().flat_map(u32::to_le_bytes));
        if let Some(Some(table)) = self.table.get() {
            bytes.extend(table.entries().flat_map(u16::to_le_bytes));
        }
        bytes.extend(xxh3_128(&bytes).to_le_bytes());
        bytes
    }

    /// The same bytes with a valid checksum, as an attacker could write them.
    #[doc(hidden)]
    pub fn forged(bytes: &[u8]) -> Vec<u8> {
        let content = &bytes[..bytes.len().saturating_sub(size_of::<u128>())];
        [content, &xxh3_128(content).to_le_bytes()].concat()
    }

    /// Reads the result of [`Costs::to_bytes`], if it belongs to this plan.
    pub(crate) fn from_bytes(work: &dyn Workload, bytes: &[u8]) -> Option<Self> {
        let costs = Self::new(work);
        let (content, checksum) = bytes.split_last_chunk()?;
        let rest = content.strip_prefix(&MAGIC)?;
        let rest = rest.strip_prefix(work.fingerprint().as_bytes())?;
        let (stages, mut rest) = rest.split_first_chunk()?;
        if xxh3_128(content) != u128::from_le_bytes(*checksum)
            || u32::from_le_bytes(*stages) as usize != costs.stages.len()
        {
            return None;
        }
        let mut number = || {
            let (number, left) = rest.split_first_chunk()?;
            rest = left;
            Some(u64::from_le_bytes(*number))
        };
        for mean in costs.means() {
            mean.set(number()?, number()?);
        }
        rest = costs.totals.fill(rest)?;
        // A run whose samples were too fast for a table saved none.
        if !rest.is_empty() {
            let table = Table::for_samples(work.samples(), columns(work))?;
            table.fill(rest)?;
            costs.table.set(Some(table)).ok()?;
        }
        Some(costs)
    }
}
