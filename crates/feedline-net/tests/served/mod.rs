//! A storage server, and the stream of a loader that uses it, for tests.
#![allow(dead_code, reason = "each test uses a part")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use feedline_data::batch::{Batch, FieldData};
use feedline_data::plan::{Document, Plan, Registry};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_net::storage::{Link, LinkTerms, REPLY_MEMORY_BYTES, RemoteStore, Root, Server, ServerConfig, Token};

pub(crate) fn config(root: &Path) -> ServerConfig {
    ServerConfig {
        root: Root::folder(root).unwrap(),
        listen: "127.0.0.1:0".parse().unwrap(),
        cpus: 2.0,
        token: None,
        identity: None,
        memory_bytes: REPLY_MEMORY_BYTES,
        link_mbps: None,
        cache_folder: None,
        http: None,
    }
}

/// A server with a cache folder.
pub(crate) fn caching_config(root: &Path, cache: &Path) -> ServerConfig {
    ServerConfig { cache_folder: Some(cache.to_owned()), ..config(root) }
}

pub(crate) fn serve(root: &Path) -> Server {
    Server::start(config(root)).unwrap()
}

pub(crate) fn store(address: SocketAddr, token: Option<&str>) -> RemoteStore {
    let token = token.map(|token| Token::new(token).unwrap());
    RemoteStore::new(Arc::new(Link::new(LinkTerms::plain(&address.to_string(), token))), &address.to_string(), "")
}

pub(crate) fn plan(root: &str) -> Arc<Plan> {
    let text = format!(
        "batch_size = 4\nshuffle = true\nseed = 3\n[source]\nkind = \"folder\"\nroot = \"{root}\"\n[run]\nnum_workers = 4\n\
         [[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 16\n[[ops]]\nop = \"ToTensor\"\n"
    );
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap())
}

pub(crate) type Seen = Vec<(u64, Vec<i64>, Vec<u8>)>;

pub(crate) fn seen(batches: &[Batch]) -> Seen {
    let image = |batch: &Batch| batch.field("image").map(FieldData::bytes).unwrap().to_vec();
    batches.iter().map(|batch| (batch.epoch.0, batch.ids(), image(batch))).collect()
}

pub(crate) fn two_epochs(plan: &Arc<Plan>) -> Seen {
    let loader = Loader::new(Arc::clone(plan), &Machine::default());
    (0..2).flat_map(|_| seen(&collect(&loader).unwrap())).collect()
}
