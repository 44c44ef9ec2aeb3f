//! Arguments of the commands that serve others, watch them, or show what is kept.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use feedline_data::plan::ByteSize;

use super::parse_bytes;

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
pub(crate) struct StorageArguments {
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
pub(crate) struct NodeArguments {
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
pub(crate) struct TopArguments {
    /// Where the node listens; by default that of this user, or where `FEEDLINE_NODE` says.
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Look once, over a second, and end.
    #[arg(long)]
    pub once: bool,
}

/// What `feedline cache` does.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what is kept and how much it takes.
    Show,
    /// Remove everything that is kept; it is made again when it is needed.
    Clear,
}
