//! The check of `verify` for storage servers, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use feedline_data::batch::FieldTypes;
use feedline_data::plan::{Document, Plan, Registry};
use feedline_data::source::{Origin, Source, SourceError};
use feedline_data::store::{Fetch, Peer, PeerRequest, Prefix, Prepared};
use feedline_data::testing::write_pictures;
use feedline_diagnose::verify::{Extent, LawReport, Verdict, Watch, verify};
use feedline_engine::machine::Machine;
use feedline_net::storage::Server;
use feedline_order::{SampleId, SampleRequest};
use served::caching_config;

mod served;

struct Quiet;

impl Watch for Quiet {}

fn server(root: &Path, cache: &Path) -> Server {
    Server::start(caching_config(root, cache)).unwrap()
}

fn plan(server: &Server) -> Plan {
    let text = format!(
        "batch_size = 4\nshuffle = true\nseed = 3\n[source]\nkind = \"folder\"\nroot = \"feedline://{}/train\"\n\
         [[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 24\n[[ops]]\nop = \"ToTensor\"\n",
        server.address()
    );
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    Document::parse(&text).unwrap().open(&registry).unwrap()
}

fn offloading(plan: Plan) -> LawReport {
    let extent = Extent { epochs: 1, samples: 100, ids: 1000 };
    let found = verify(&Arc::new(plan), extent, &Machine::default(), &Quiet).unwrap();
    found.laws.into_iter().find(|law| law.name == "offloaded = local").unwrap()
}

#[test]
fn law_1_every_policy_of_a_sound_server_passes() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 18, 3).unwrap();
    let server = server(data.path(), cache.path());
    let law = offloading(plan(&server));
    assert_eq!(law.verdict, Verdict::Pass, "{law:#?}");
    assert!(law.detail.contains("all (") && !law.detail.contains("all (0 "), "{}", law.detail);
}

/// A server that confuses two samples when it prepares them.
#[derive(Debug)]
struct MistakenPeer {
    inner: Arc<dyn Peer>,
    samples: u64,
}

impl Peer for MistakenPeer {
    fn ask(&self, prefix: &Arc<Prefix>, peer_request: PeerRequest, done: Box<dyn FnOnce(Prepared) + Send>) -> Fetch {
        let peer_request = match peer_request {
            PeerRequest::Sample { request, form, .. } if form.cut.0 > 0 => {
                let id = SampleId((request.id.0 + 1) % self.samples);
                // A lying server does not check that the file is the listed one.
                PeerRequest::Sample { request: SampleRequest { id, ..request }, form, stored: Vec::new() }
            }
            other => other,
        };
        self.inner.ask(prefix, peer_request, done)
    }

    fn bytes_per_second(&self) -> Option<f64> {
        self.inner.bytes_per_second()
    }
}

/// The source of its samples.
#[derive(Debug)]
struct Mistaken(Arc<dyn Source>);

impl Source for Mistaken {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn fields(&self) -> FieldTypes {
        self.0.fields()
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        self.0.origin(id, field)
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn peer(&self) -> Option<Arc<dyn Peer>> {
        Some(Arc::new(MistakenPeer { inner: self.0.peer()?, samples: self.0.len() }))
    }

    fn make(&self, id: SampleId, field: &str, target: &mut [u8]) {
        self.0.make(id, field, target);
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        self.0.key(id)
    }

    fn class_of(&self, id: SampleId) -> Option<i64> {
        self.0.class_of(id)
    }

    fn identity(&self) -> u128 {
        self.0.identity()
    }

    fn version(&self) -> u128 {
        self.0.version()
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        self.0.spec()
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        self.0.refreshed()
    }
}

#[test]
fn law_1_a_server_that_prepares_another_sample_is_found_out() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 18, 3).unwrap();
    let server = server(data.path(), cache.path());
    let sound = plan(&server);
    let source: Arc<dyn Source> = Arc::new(Mistaken(Arc::clone(sound.source())));
    // Nothing is offloaded, except where a check sets it.
    let config =
        feedline_data::plan::RunConfig { offload: feedline_data::plan::Policy::None, ..sound.config().clone() };
    let mistaken = Plan::new(source, sound.ops().to_vec(), sound.settings().clone(), config).unwrap();
    let law = offloading(mistaken);
    assert_eq!(law.verdict, Verdict::Fail, "{law:#?}");
    let counterexample = law.counterexample.unwrap();
    assert_eq!((counterexample.law, counterexample.field.as_deref()), (1, Some("image")));
    assert_eq!(counterexample.configurations[0], "offload none");
    assert!(counterexample.byte.is_some() && counterexample.expected != counterexample.found, "{counterexample}");
}
