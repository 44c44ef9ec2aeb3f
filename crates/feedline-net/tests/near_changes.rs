//! A storage server prepares samples while files, shards and plans change, and with faulty servers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use feedline_codec::{Subsampling, encode_jpeg};
use feedline_data::batch::Batch;
use feedline_data::plan::{Document, Plan, Registry};
use feedline_data::testing::{picture, write_pictures, write_volumes};
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_net::storage::{Server, ServerConfig};
use feedline_net::wire::{Failure, Frame, Reply, Request, Sequence};
use feedline_order::Epoch;
use served::caching_config as config;

mod served;

const PICTURES: &str = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 24\n\
     [[ops]]\nop = \"RandomHorizontalFlip\"\n[[ops]]\nop = \"ToTensor\"\n";

fn plan_with(head: &str, source: &str, offload: &str, ops: &str) -> Arc<Plan> {
    let text = format!(
        "batch_size = 4\nshuffle = true\nseed = 3\n{head}\n[source]\n{source}\n[run]\nnum_workers = 2\noffload = \"{offload}\"\n{ops}"
    );
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap())
}

fn plan(source: &str, offload: &str, ops: &str) -> Arc<Plan> {
    plan_with("", source, offload, ops)
}

fn folder(root: &str) -> String {
    format!("kind = \"folder\"\nroot = \"{root}\"")
}

fn tar(root: &str) -> String {
    format!("kind = \"tar\"\nshards = \"{root}\"")
}

fn loader(plan: Arc<Plan>) -> Loader {
    Loader::new(plan, &Machine::default())
}

type Seen = Vec<(u64, Vec<i64>, Vec<Vec<u8>>)>;

fn epoch(loader: &Loader) -> Seen {
    let fields = |batch: &Batch| batch.fields.iter().map(|field| field.data.bytes().to_vec()).collect();
    collect(loader).unwrap().iter().map(|batch| (batch.epoch.0, batch.ids(), fields(batch))).collect()
}

fn jpeg(number: u64, width: u32, height: u32) -> Vec<u8> {
    encode_jpeg(&picture(number, width, height), width, height, 3, 85, Subsampling::S420).unwrap()
}

fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut head = vec![0_u8; 512];
    head[..name.len()].copy_from_slice(name.as_bytes());
    head[100..107].copy_from_slice(b"0000644");
    head[108..115].copy_from_slice(b"0000000");
    head[116..123].copy_from_slice(b"0000000");
    head[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    head[136..147].copy_from_slice(b"00000000000");
    head[148..156].copy_from_slice(b"        ");
    head[156] = b'0';
    head[257..263].copy_from_slice(b"ustar\0");
    head[263..265].copy_from_slice(b"00");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head.extend(bytes);
    head.resize(head.len().next_multiple_of(512), 0);
    head
}

fn write_shard(path: &Path, first: u64, count: u64, look: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut bytes: Vec<u8> = (first..first + count)
        .flat_map(|number| {
            [
                member(&format!("{number:05}.jpg"), &jpeg(number + look, 90, 70)),
                member(&format!("{number:05}.cls"), b"1"),
            ]
            .concat()
        })
        .collect();
    bytes.extend([0; 1024]);
    let new = path.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn a_client_that_lists_anew_gets_the_samples_that_it_listed() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let train = data.path().join("train");
    write_pictures(&train, 12, 2).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let there = folder(&format!("feedline://{}/train", server.address()));
    let here = folder(train.to_str().unwrap());
    assert!(epoch(&loader(plan(&there, "all", PICTURES))) == epoch(&loader(plan(&here, "all", PICTURES))));
    fs::write(train.join("class-0/00000-a.jpg"), jpeg(99, 50, 40)).unwrap();
    let second = loader(plan(&there, "all", PICTURES));
    let (found, expected) = (epoch(&second), epoch(&loader(plan(&here, "all", PICTURES))));
    let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
    assert_eq!(wrong, 0, "{wrong} of {} batches differ; {:?}", found.len(), second.snapshot().store.candidates);
}

#[test]
fn shards_without_an_index_are_prepared_too() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_shard(&data.path().join("train/a-000.tar"), 0, 12, 0);
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let all = loader(plan(&tar(&format!("feedline://{}/train/*.tar", server.address())), "all", PICTURES));
    let expected = epoch(&loader(plan(&tar(&format!("{}/train/*.tar", data.path().display())), "all", PICTURES)));
    assert!(epoch(&all) == expected);
    let came = all.snapshot().store.candidates;
    let stats = server.stats();
    assert!(!came.contains_key("raw"), "{came:?}; failures {:?}", stats.failures);
}

#[test]
fn numbered_shards_are_prepared_over_one_connection() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for shard in 0..5 {
        write_shard(&data.path().join(format!("train/a-{shard:03}.tar")), shard * 4, 4, 0);
    }
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let plan = plan(&tar(&format!("feedline://{}/train/a-{{000..004}}.tar", server.address())), "all", PICTURES);
    let connections = server.connections();
    assert!(plan.source().peer().is_some() && connections == 1, "{connections} connections");
}

#[test]
fn a_shard_that_was_replaced_is_the_new_one_for_whoever_opens_it_now() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shard = data.path().join("train/a-000.tar");
    write_shard(&shard, 0, 12, 0);
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let there = tar(&format!("feedline://{}/train/*.tar", server.address()));
    let here = tar(&format!("{}/train/*.tar", data.path().display()));
    let first = loader(plan(&there, "all", PICTURES));
    assert!(epoch(&first) == epoch(&loader(plan(&here, "all", PICTURES))));
    write_shard(&shard, 0, 12, 1000);
    let second = loader(plan(&there, "all", PICTURES));
    let (found, expected) = (epoch(&second), epoch(&loader(plan(&here, "all", PICTURES))));
    let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
    assert_eq!(wrong, 0, "{wrong} of {} batches differ; {:?}", found.len(), second.snapshot().store.candidates);
}

#[test]
fn law_6_a_file_that_was_replaced_by_another_picture_fails_by_name_whoever_prepares_it() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let train = data.path().join("train");
    write_pictures(&train, 12, 2).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let there = folder(&format!("feedline://{}/train", server.address()));
    for (number, policy) in (0..).zip(["none", "all", "auto", "resize"]) {
        // The client has listed the files. Then one of them is replaced.
        let loader = loader(plan(&there, policy, PICTURES));
        fs::write(train.join("class-1/00003.jpg"), jpeg(90 + number, 50, 40)).unwrap();
        let text = feedline_data::failure::chain(&collect(&loader).unwrap_err());
        assert!(text.contains("class-1/00003.jpg") && text.contains("has changed since"), "{policy}: {text}");
    }
}

#[test]
fn raw_volumes_are_their_stored_bytes() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_volumes(&data.path().join("volumes"), 4, [30, 40, 40]).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let ops = "[[ops]]\nop = \"RandomBalancedCrop\"\nsize = [8, 8, 8]\non = [\"image\", \"label\"]\n";
    let source = format!("kind = \"volumes\"\nroot = \"feedline://{}/volumes\"", server.address());
    let none = loader(plan(&source, "none", ops));
    epoch(&none);
    let store = none.snapshot().store;
    let stored: u64 = (0..4)
        .flat_map(|number| ["image", "label"].map(|name| data.path().join(format!("volumes/{number}/{name}.nii"))))
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(
        store.bytes_received_epoch < stored * 11 / 10,
        "{} bytes came of {stored} stored: {:?}",
        store.bytes_received_epoch,
        store.candidates
    );
}

#[test]
fn one_bad_file_does_not_keep_a_decision_away() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let train = data.path().join("train");
    fs::create_dir_all(&train).unwrap();
    for number in 0..48 {
        fs::write(train.join(format!("{number:03}.jpg")), jpeg(number, 400, 300)).unwrap();
    }
    let server = Server::start(ServerConfig { link_mbps: Some(8.0), ..config(data.path(), cache.path()) }).unwrap();
    let source = folder(&format!("feedline://{}/train", server.address()));
    let first = plan(&source, "auto", PICTURES).ids(Epoch(0), 8);
    fs::write(train.join(format!("{:03}.jpg", first[3])), b"no picture").unwrap();
    let plan = plan_with("on_error = { max_fraction = 0.5 }", &source, "auto", PICTURES);
    let auto = loader(plan);
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        collect(&auto).unwrap();
        if auto.snapshot().store.candidates.iter().any(|(name, count)| name != "raw" && *count >= 40) {
            return;
        }
    }
    panic!("{:?}", auto.snapshot().store.candidates);
}

#[test]
fn a_server_that_never_knows_the_plan_is_not_asked_forever() {
    let data = tempfile::tempdir().unwrap();
    write_pictures(&data.path().join("train"), 4, 1).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let plans = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&plans);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counted) = (stream.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let (mut incoming, mut outgoing) = (Sequence::default(), Sequence::default());
                while let Ok(Some(frame)) = Frame::read(&mut stream, &mut incoming, 1 << 20) {
                    let reply = match frame.message::<Request>().unwrap() {
                        Request::Hello { .. } => Reply::Welcome,
                        Request::List { .. } => {
                            Reply::Names { names: vec![("class-0/00000.jpg".to_owned(), None)], left_out: 0 }
                        }
                        Request::Plan { .. } => {
                            counted.fetch_add(1, Ordering::Relaxed);
                            Reply::Planned
                        }
                        Request::Prepare { .. } => {
                            Reply::Failed { failure: Failure::UnknownPlan, reason: "unknown".to_owned() }
                        }
                        _ => Reply::Failed { failure: Failure::Other, reason: "no".to_owned() },
                    };
                    let reply = Frame::new(frame.request, &reply, Vec::new()).unwrap();
                    if reply.write(&mut stream, &mut outgoing).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let loader = loader(plan(&folder(&format!("feedline://{address}/train")), "none", PICTURES));
    let iteration = loader.begin().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(2) {
        match loader.next_within(iteration, Duration::from_millis(200)) {
            Ok(Next::NotYet) => {}
            ended => {
                assert!(ended.is_err(), "the server gives nothing");
                assert!(
                    plans.load(Ordering::Relaxed) < 20,
                    "the plan was sent {} times",
                    plans.load(Ordering::Relaxed)
                );
                return;
            }
        }
    }
    panic!("nothing after {:?}, the plan was sent {} times", start.elapsed(), plans.load(Ordering::Relaxed));
}

#[test]
fn a_cache_is_filled_whatever_the_policy_is() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 60, 3).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let source = folder(&format!("feedline://{}/train", server.address()));
    for policy in ["none", "all"] {
        let ops = format!("[run.cache]\nram = \"64MB\"\n{PICTURES}");
        let loader = loader(plan(&source, policy, &ops));
        for _ in 0..4 {
            epoch(&loader);
        }
        let found = loader.snapshot().cache;
        assert!(found.hits > 0, "{policy}: {found:?}");
    }
}
