//! Arguments of the commands that serve samples, watch a node, or manage the cache.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use feedline_data::plan::ByteSize;

use super::{OUTPUT, RESOURCES, parse_bytes};

/// Arguments of `feedline storage`.
#[derive(Args, Debug)]
#[command(after_help = "\
A training script changes only its source: fl.folder(\"feedline://host:7077/train\"), with FEEDLINE_TOKEN_FILE set.

Examples:
  feedline storage --root /data --listen 127.0.0.1:7077
  feedline storage --root /data --listen 0.0.0.0:7077 --token-file token --cpus 4
  feedline storage --root /data --listen 0.0.0.0:7077 --token-file token --tls-cert server.pem --tls-key server.key
  feedline storage --root s3://bucket/train
  feedline storage --root /data --http 127.0.0.1:9100     then, in another terminal: curl http://127.0.0.1:9100/metrics
  feedline storage --root /data --link-mbps 500")]
pub(crate) struct StorageArguments {
    /// Folder to serve, or its URL in an object store.
    #[arg(long, help_heading = "Data")]
    pub root: String,
    /// Address to listen on. Port 0 takes a free port. An address that other machines can reach needs a token.
    #[arg(long, help_heading = "Network", default_value = "127.0.0.1:7077")]
    pub listen: std::net::SocketAddr,
    /// Number of cores to use, such as 0.5 [default: all].
    #[arg(long, help_heading = RESOURCES)]
    pub cpus: Option<f64>,
    /// Memory for the replies to all clients [default: 1GB].
    #[arg(long, help_heading = RESOURCES, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<ByteSize>,
    /// File with a secret that clients must know. It is never sent.
    #[arg(long, help_heading = "Security")]
    pub token_file: Option<PathBuf>,
    /// Address for /health, /metrics (for Prometheus) and /stats (JSON) over HTTP.
    #[arg(long, help_heading = "Network")]
    pub http: Option<std::net::SocketAddr>,
    /// File with the certificate of this server, in PEM. Turns on TLS: clients then use feedlines://.
    #[arg(long, help_heading = "Security", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate.
    #[arg(long, help_heading = "Security", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Limit of the sending rate in megabits per second, to simulate a slow link.
    #[arg(long, help_heading = "Network")]
    pub link_mbps: Option<f64>,
}

/// Arguments of `feedline node`.
#[derive(Args, Debug)]
#[command(after_help = "\
A training script uses the node with fl.Loader(..., share=True), which starts one if there is none. A node that you start
yourself runs until you stop it. Give it the memory that all jobs together may use.

Examples:
  feedline node
  feedline node --memory 16GB
  feedline node --http 127.0.0.1:9401            then open http://127.0.0.1:9401/ in a browser
  feedline node --socket /run/user/1000/mine.sock")]
pub(crate) struct NodeArguments {
    /// Socket of the node [default: `FEEDLINE_NODE`, else a socket of this user].
    #[arg(long, help_heading = "Network")]
    pub socket: Option<PathBuf>,
    /// Memory for prepared samples, such as 8GB [default: half of the machine's memory, at most 8GB].
    #[arg(long, help_heading = RESOURCES, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<ByteSize>,
    /// Local address for a live page at /, /health, /metrics (for Prometheus) and /stats (JSON). Port 0 takes a free port.
    #[arg(long, help_heading = "Network", value_name = "ADDRESS")]
    pub http: Option<std::net::SocketAddr>,
    /// End after the last job has left.
    #[arg(long, help_heading = "Lifetime")]
    pub until_idle: bool,
}

/// Arguments of `feedline top`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline top
  feedline top --once
  feedline --json top | jq '.jobs[].samples'")]
pub(crate) struct TopArguments {
    /// Socket of the node [default: `FEEDLINE_NODE`, else a socket of this user].
    #[arg(long, help_heading = "Network")]
    pub socket: Option<PathBuf>,
    /// Measure for one second, print once and end.
    #[arg(long, help_heading = OUTPUT)]
    pub once: bool,
}

/// The commands of `feedline cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what the cache contains, and its size.
    Show,
    /// Remove everything. The loader creates it again when it needs it.
    Clear,
}
