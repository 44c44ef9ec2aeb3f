//! The arguments as typed, with their help. Each command turns its own into what they mean.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use feedline_data::plan::{ByteSize, Policy};
use feedline_data::store::escaped_path;

use crate::doctor::DoctorArguments;

/// Loads data for training: try it, look at it, measure it.
#[derive(Debug, Parser)]
#[command(
    name = "feedline",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  feedline demo                                  make pictures, train on them, show the numbers
  feedline synth pictures --images 1000          make a picture set
  feedline pack pictures shards                  pack it into tar shards with an index
  feedline run plan.toml --json                  measure a plan
  feedline doctor plan.toml --step-ms 80         what bounds a job, and what would help
  feedline verify plan.toml                      check that the promises hold for it
  feedline show plan.toml samples.png            look at what a plan gives"
)]
pub struct Arguments {
    /// Write exactly one JSON document to stdout.
    #[arg(long, global = true)]
    pub json: bool,
    /// Run Python functions that plans name (ops.Map): only for plans that you trust.
    #[arg(long, global = true)]
    pub allow_functions: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a plan and measure it.
    Run(RunArguments),
    /// Draw the first samples of a plan as a grid.
    Show(ShowArguments),
    /// Pack pictures into tar shards with an index.
    Pack(PackArguments),
    /// Make the seek indexes of pictures ahead of the first epoch.
    Index(IndexArguments),
    /// Show what samples take, which are slow, and why.
    Cost(CostArguments),
    /// Show how good the shuffle of a plan is, against a full one.
    Shuffle(ShuffleArguments),
    /// Find out what bounds a job, why, and what would help.
    Doctor(DoctorArguments),
    /// Show what a storage server would do for a plan, why, and what that gains.
    Offload(OffloadArguments),
    /// Check on your own data and machine that the promises hold: same stream, exactly once, exact resume.
    Verify(VerifyArguments),
    /// Show or remove what is kept in the cache folder.
    Cache {
        /// What to do.
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Serve files to training machines, next to the data.
    Storage(StorageArguments),
    /// Prepare samples once for all jobs of this machine.
    Node(NodeArguments),
    /// Watch the node of this machine: runs, jobs, samples per second, memory, why jobs wait.
    Top(TopArguments),
    /// Make a set of pictures that look like photographs to a codec.
    Synth(SynthArguments),
    /// Make pictures, train a small classifier on them, show the numbers.
    Demo(DemoArguments),
}

/// Arguments of `feedline storage`.
#[derive(Args, Debug)]
#[command(after_help = "\
In training only the source changes: fl.folder(\"feedline://host:7077/train\"), with FEEDLINE_TOKEN_FILE set there.

Examples:
  feedline storage --root /data --listen 127.0.0.1:7077
  feedline storage --root /data --listen 0.0.0.0:7077 --token-file token --cpus 4
  feedline storage --root /data --listen 0.0.0.0:7077 --token-file token --tls-cert server.pem --tls-key server.key
  feedline storage --root s3://bucket/train
  feedline storage --root /data --http 127.0.0.1:9100     then, in another terminal: curl http://127.0.0.1:9100/metrics
  feedline storage --root /data --link-mbps 500")]
pub struct StorageArguments {
    /// The folder whose files are served, or its URL in an object store.
    #[arg(long)]
    pub root: String,
    /// Where to listen; port 0 takes a free one. Others than this machine need a token.
    #[arg(long, default_value = "127.0.0.1:7077")]
    pub listen: std::net::SocketAddr,
    /// Cores to use, 0.5 for half of one; all by default.
    #[arg(long)]
    pub cpus: Option<f64>,
    /// Memory for the replies of all clients together; 1GB by default.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<ByteSize>,
    /// A file with a secret that clients have to know.
    #[arg(long)]
    pub token_file: Option<PathBuf>,
    /// Where to say over HTTP how the server is doing: /health, /metrics (for Prometheus) and /stats (JSON).
    #[arg(long)]
    pub http: Option<std::net::SocketAddr>,
    /// A file with the certificate of this server, in PEM: then it speaks TLS, and clients say feedlines://.
    #[arg(long, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// A file with the key of the certificate.
    #[arg(long, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The most to send, in megabits per second, to try what a slow link does.
    #[arg(long)]
    pub link_mbps: Option<f64>,
}

/// Arguments of `feedline node`.
#[derive(Args, Debug)]
#[command(after_help = "\
A training script asks for it by fl.Loader(..., share=True), which starts one where there is none. A node that is started
by hand stays until it is stopped; give it the memory that all jobs together may use.

Examples:
  feedline node
  feedline node --memory 16GB
  feedline node --http 127.0.0.1:9401            then open http://127.0.0.1:9401/ in a browser
  feedline node --socket /run/user/1000/mine.sock")]
pub struct NodeArguments {
    /// Where jobs find it; by default in the folder for this user's sockets, or where `FEEDLINE_NODE` says.
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Memory for prepared samples, e.g. 8GB; by default half of the machine's, at most 8GB.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<ByteSize>,
    /// Where to say over HTTP how the node is doing, on this machine: / (a live page), /health, /metrics (for Prometheus)
    /// and /stats (JSON). Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<std::net::SocketAddr>,
    /// End when the last job has gone.
    #[arg(long)]
    pub until_idle: bool,
}

/// Arguments of `feedline top`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline top
  feedline top --once
  feedline --json top | jq '.jobs[].samples'")]
pub struct TopArguments {
    /// Where the node listens; by default that of this user, or where `FEEDLINE_NODE` says.
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Look once, over a second, and end.
    #[arg(long)]
    pub once: bool,
}

/// Arguments of `feedline run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Nothing is done with the batches, so a stall share near 100 % is the loader at full speed.

Examples:
  feedline run plan.toml
  feedline run plan.toml --epochs 3 --num-workers 8
  feedline run plan.toml --batches 100 --json | jq .samples_per_second")]
pub struct RunArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// Epochs to run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Most batches to take of each epoch.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub batches: Option<u64>,
    /// Preparer threads, in place of the plan's.
    #[arg(long)]
    pub num_workers: Option<usize>,
}

/// Arguments of `feedline shuffle`.
#[derive(Args, Debug)]
#[command(after_help = "\
Only the order is looked at, and the classes of samples where they have some: no data is read.

Examples:
  feedline shuffle plan.toml
  feedline shuffle plan.toml --html shuffle.html
  feedline shuffle plan.toml --json | jq .plan.labels.classes_per_batch")]
pub struct ShuffleArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// The epoch to look at, with the one after it.
    #[arg(long, default_value_t = 0)]
    pub epoch: u64,
    /// A page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// A picture of the plots.
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
}

/// Arguments of `feedline show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline show plan.toml samples.png
  feedline show plan.toml samples.png --samples 64 --epoch 3")]
pub struct ShowArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// The PNG file to write.
    pub out: PathBuf,
    /// Samples to draw.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub samples: u16,
    /// The epoch to take them from.
    #[arg(long, default_value_t = 0)]
    pub epoch: u64,
}

/// Arguments of `feedline index`.
#[derive(Args, Debug)]
#[command(after_help = "\
With its index, only the part of a JPEG that a crop needs is read and decoded. Without this command the indexes are made in
the first epoch. They are kept in the cache folder (FEEDLINE_CACHE, else ~/.cache/feedline); the files stay as they are.

Examples:
  feedline index data/train
  feedline index 'shards/*.tar'
  feedline index plan.toml --workers 8")]
pub struct IndexArguments {
    /// A folder of pictures, shards ('shards/*.tar'), or a plan, whose source is taken.
    #[arg(value_parser = path_text())]
    pub src: String,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// Arguments of `feedline cost`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs one epoch, after one to learn from if nothing is known of the plan yet. Costs are kept in the cache folder
(FEEDLINE_CACHE, else ~/.cache/feedline) and let slow samples start early from the first epoch on.

Examples:
  feedline cost plan.toml
  feedline cost plan.toml --slowest 20 --json
  feedline cost plan.toml --sample case_00013/imaging.nii.gz --seeds 0,1")]
pub struct CostArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// How many of the slowest samples are named.
    #[arg(long, default_value_t = 10)]
    pub slowest: usize,
    /// The time of each op for one sample, by its name.
    #[arg(long)]
    pub sample: Option<String>,
    /// The seeds of its draws.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1], requires = "sample")]
    pub seeds: Vec<u64>,
}

/// Arguments of `feedline offload`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs the plan for some seconds without and with the storage server's help, and asks the server what single samples would
take in each form. The plan's source is on a storage server: root = \"feedline://host:7077/train\".

Examples:
  feedline offload plan.toml
  feedline offload plan.toml --step-ms 80 --policy sophon
  feedline offload plan.toml --html offload.html --png offload.png
  feedline offload plan.toml --json")]
pub struct OffloadArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// The policy to look at, in place of the plan's.
    #[arg(long, value_parser = policy, value_name = "POLICY")]
    pub policy: Option<Policy>,
    /// How long the accelerator works on a batch.
    #[arg(long, default_value_t = 0.0)]
    pub step_ms: f64,
    /// How long each of the two runs is.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// How many samples are looked at in all forms.
    #[arg(long, default_value_t = 64)]
    pub samples: u64,
    /// A page with plots of these samples.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// A picture of the plots.
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
}

/// Arguments of `feedline verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs the first samples of each epoch in several configurations that must not differ (1, 2 and 5 workers, what is prepared
ahead, orders of delivery, stopped and resumed, fused and op by op, offloaded and local), and compares samples and bytes.
Numbers of samples are counted over whole epochs, up to two million. A bad sample is a finding, not a broken law.
Exits with 1 if a law is broken; the last line says which.

Examples:
  feedline verify plan.toml
  feedline verify plan.toml --samples 100000 --epochs 3
  feedline verify plan.toml --json | jq '.laws[] | select(.verdict == \"fail\") | .counterexample'")]
pub struct VerifyArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// Samples of each epoch to look at in each configuration, in whole batches, and at least four of them.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: u64,
    /// Epochs to look at.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub epochs: u64,
}

fn policy(text: &str) -> Result<Policy, String> {
    let known = || format!("a policy is {}", Policy::ALL.map(|policy| policy.to_string()).join(", "));
    Policy::ALL.into_iter().find(|policy| policy.to_string() == text).ok_or_else(known)
}

/// What `feedline cache` does.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Show what is kept and how much it takes.
    Show,
    /// Remove everything that is kept; it is made again when it is needed.
    Clear,
}

/// Arguments of `feedline synth`.
#[derive(Args, Debug)]
#[command(after_help = "\
The same arguments give the same files, on any machine and with any number of workers.

Examples:
  feedline synth pictures --images 1000
  feedline synth pictures --images 50000 --classes 100 --size 256-640 --seed 7
  feedline synth large --images 200 --size 2000-4000 --quality 92")]
pub struct SynthArguments {
    /// The folder to fill; each class is a sub-folder.
    pub dir: PathBuf,
    /// Pictures to make.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub images: u64,
    /// Classes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub classes: u32,
    /// Shortest and longest side in pixels.
    #[arg(long, default_value = "256-640", value_name = "MIN-MAX", value_parser = parse_sides)]
    pub size: (u32, u32),
    /// JPEG quality.
    #[arg(long, default_value_t = 88, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: u8,
    /// The seed of all randomness.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Write into a folder that is not empty; files of the same name are replaced.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `feedline pack`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shards are ordinary tar files in WebDataset's layout: the members of a sample share a key, which is the path below SRC
without its ending; the class is in KEY.cls. Beside each shard lies its index, so that fl.tar(\"DST/*.tar\") opens at once.
Dots inside a name become underscores in the key, because WebDataset cuts there; a second picture of one name gets a key of
its own. Both are counted in the summary.

A picture is damaged if it cannot be decoded. Baseline JPEGs are walked to their end, all others are decoded; what is not a
picture is not looked at. A run that was stopped or killed goes on behind the last finished shard when started again.

Examples:
  feedline pack data/train shards
  feedline pack data/train shards --shard-size 1GB --damaged skip
  feedline pack data/train small --max-side 512
  feedline pack data/train pixels --pixels --max-side 256
  feedline pack 'shards/*.tar' larger --shard-size 4GB
  feedline pack plan.toml shards --json | jq .mb_per_second")]
pub struct PackArguments {
    /// A folder of pictures, tar shards (a folder, a path or a pattern), or a plan whose source is packed.
    #[arg(value_parser = path_text())]
    pub src: String,
    /// The folder for the shards: new, empty, or one that this command began to fill.
    pub dst: PathBuf,
    /// A shard ends before the sample that would make it larger.
    #[arg(long, default_value = "256MB", value_name = "BYTES", value_parser = parse_bytes)]
    pub shard_size: ByteSize,
    /// Store files byte for byte (the default).
    #[arg(long, conflicts_with = "pixels")]
    pub as_is: bool,
    /// Store decoded pixels, upright, as PPM, or PGM for masks and grey: larger, but nothing to decode.
    #[arg(long)]
    pub pixels: bool,
    /// Make pictures smaller whose longer side exceeds N (bilinear, antialiased; masks by nearest neighbour). Without --pixels
    /// these, and only these, are encoded anew: JPEG of quality 92, masks as PNG.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_500))]
    pub max_side: Option<u32>,
    /// What becomes of pictures that cannot be decoded; both are reported.
    #[arg(long, value_enum, default_value_t = DamagedArgument::Keep)]
    pub damaged: DamagedArgument,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// What becomes of a picture that cannot be decoded.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DamagedArgument {
    /// Stored as it is.
    Keep,
    /// Its sample is left out.
    Skip,
}

/// Arguments of `feedline demo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline demo
  feedline demo --images 2000 --keep demo-data")]
pub struct DemoArguments {
    /// Pictures to make.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    pub images: u64,
    /// Keep pictures and plans in this folder, which has to be empty or new.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// Reads a path as text, in which names that are not UTF-8 are escaped.
fn path_text() -> impl TypedValueParser<Value = String> {
    PathBufValueParser::new().map(|path| escaped_path(&path))
}

fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    ByteSize::parse(text).filter(|size| size.0 > 0).ok_or_else(|| "write bytes, or e.g. 256MB".to_owned())
}

fn parse_sides(text: &str) -> Result<(u32, u32), String> {
    const ALLOWED: std::ops::RangeInclusive<u32> = 16..=16_384;
    let (shortest, longest) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|error| format!("{error}; write e.g. 256-640"));
    let (shortest, longest) = (number(shortest)?, number(longest)?);
    if !ALLOWED.contains(&shortest) || !ALLOWED.contains(&longest) || shortest > longest {
        return Err(format!("sides lie between {} and {}, the shortest first", ALLOWED.start(), ALLOWED.end()));
    }
    Ok((shortest, longest))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_are_a_range_or_one_number() {
        assert_eq!(parse_sides("256-640"), Ok((256, 640)));
        assert_eq!(parse_sides("64"), Ok((64, 64)));
        for wrong in ["640-256", "0-10", "a-b", "1-", "-5"] {
            assert!(parse_sides(wrong).is_err(), "{wrong}");
        }
    }
}
