//! A node and jobs that attach to it, over a real socket and shared memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData};
use feedline_engine::carousel::{Carousel, Memory};
use feedline_engine::error::Error;
use feedline_engine::loader::{Connect, Deliverer, Feed, Loader, LocalFeed, Open};
use feedline_engine::machine::{CoreWeight, Machine};
use feedline_engine::state::JobProgress;
use feedline_net::http::Numbers as _;
use feedline_net::node::{AttachError, Node, NodeBatches, NodeConfig, NodeError, NodeFeed, fetch_stats};
use feedline_order::Epoch;
use jobs::{SAMPLES, attach, attach_at, check_all_once, config, epoch, ids, next, node, node_of, plan, wait_until};

mod jobs;

#[test]
fn law_2_jobs_of_any_batch_size_and_seed_share_one_production_and_see_all_once() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path());
    std::thread::scope(|scope| {
        for (number, size) in [16, 32, 7, 100].into_iter().enumerate() {
            let node = &node;
            scope.spawn(move || {
                let loader = attach(node, &plan(size, number as u64));
                for _ in 0..4 {
                    let batches = epoch(&loader);
                    check_all_once(&ids(&batches));
                    let FieldData::List(keys) = batches[0].field("key").unwrap() else { panic!("keys are texts") };
                    assert_eq!(keys.len(), batches[0].len);
                    std::thread::sleep(Duration::from_millis(5 * number as u64));
                }
            });
        }
    });
    let stats = node.stats();
    assert_eq!(stats.jobs_attached_total, 4);
    wait_until("the jobs have left", || node.jobs().0 == 0);
    assert!(node.stats().runs.is_empty(), "what nobody reads is not produced");
}

#[test]
fn law_1_a_job_gets_the_bytes_that_a_carousel_of_its_own_would_give() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let own = Arc::new(Carousel::start(&plan, &Machine::default(), Memory::Heap, 64 << 20).unwrap());
    let board =
        Box::new(move |job_progress: &JobProgress| Ok(Arc::new(LocalFeed::join(&own, job_progress)?) as Arc<dyn Feed>));
    let alone = Loader::shared(&plan, board, None).unwrap();
    let attached = attach(&node, &plan);
    for round in 1..3 {
        let by_id = |batches: Vec<Batch>| -> std::collections::BTreeMap<i64, Vec<u8>> {
            let samples = |batch: &Batch| {
                let bytes = batch.field("data").map(FieldData::bytes).unwrap();
                let each = bytes.chunks(bytes.len() / batch.len).map(<[u8]>::to_vec);
                batch.ids().into_iter().zip(each).collect::<Vec<_>>()
            };
            batches.iter().flat_map(samples).collect()
        };
        assert!(by_id(epoch(&attached)) == by_id(epoch(&alone)), "round {round}");
    }
}

#[test]
fn law_4_a_job_goes_on_at_another_node_from_its_state() {
    let plan = plan(16, 0);
    for taken in [0, 1, 5, 18] {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut before, state) = {
            let node = node(first.path());
            let loader = attach(&node, &plan);
            let iteration = loader.begin().unwrap();
            let before: Vec<Batch> = (0..taken).map(|_| next(&loader, iteration).unwrap().unwrap()).collect();
            (ids(&before), loader.state())
        };
        let node = node(second.path());
        let loader = attach(&node, &plan);
        loader.load_state(&state).unwrap();
        before.extend(ids(&epoch(&loader)));
        check_all_once(&before);
        check_all_once(&ids(&epoch(&loader)));
    }
}

#[test]
fn a_job_may_break_off_jump_and_close_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let loader = attach(&node, &plan);
    for _ in 0..20 {
        let iteration = loader.begin().unwrap();
        drop(next(&loader, iteration).unwrap());
    }
    assert_eq!(loader.upcoming_epoch(), Epoch(20));
    check_all_once(&ids(&epoch(&loader)));
    loader.set_epoch(Epoch(7)).unwrap();
    let batches = epoch(&loader);
    assert!(batches.iter().all(|batch| batch.epoch == Epoch(7)));
    check_all_once(&ids(&batches));
    let iteration = loader.begin().unwrap();
    drop(next(&loader, iteration).unwrap());
    loader.close();
    assert!(matches!(next(&loader, iteration), Err(Error::Closed)));
    wait_until("the job has left", || node.jobs().0 == 0);
    // Batches that were delivered before stay valid.
    check_all_once(&ids(&batches));
}

#[test]
fn law_7_when_the_node_ends_jobs_go_on_alone_or_get_an_error_as_they_have_asked() {
    let plan = plan(16, 0);
    for goes_on in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let own = Arc::clone(&plan);
        let fallback: Connect = Box::new(move |job_progress| {
            let carousel = Carousel::start(&own, &Machine::default(), Memory::Heap, 64 << 20)?;
            Ok(Arc::new(LocalFeed::join(&Arc::new(carousel), job_progress)?))
        });
        let loader = attach_at(node.path(), &plan, goes_on.then_some(fallback)).unwrap();
        let iteration = loader.begin().unwrap();
        let mut seen: Vec<Batch> = (0..5).map(|_| next(&loader, iteration).unwrap().unwrap()).collect();
        let began = Instant::now();
        drop(node);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        let rest: Result<Vec<Batch>, Error> = std::iter::from_fn(|| next(&loader, iteration).transpose()).collect();
        match rest {
            Ok(rest) => {
                assert!(goes_on);
                seen.extend(rest);
                check_all_once(&ids(&seen));
                check_all_once(&ids(&epoch(&loader)));
            }
            Err(error) => {
                assert!(!goes_on && matches!(error, Error::Node { .. }), "{error}");
            }
        }
    }
}

/// A node that has ended, one that is about to end, and one that ends while a job attaches.
fn dying_nodes(folder: &Path) -> [PathBuf; 3] {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let [gone, left, dying] = ["gone", "left", "dying"].map(|name| folder.join(name));
    drop(UnixListener::bind(&left).unwrap());
    let listener = UnixListener::bind(&dying).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // It receives the message of the job, and ends.
            stream.unwrap().read_exact(&mut [0; 100]).unwrap();
        }
    });
    [gone, left, dying]
}

#[test]
fn law_7_a_node_that_goes_before_or_while_a_job_attaches_is_lost_like_one_that_goes_later() {
    let (folder, plan) = (tempfile::tempdir().unwrap(), plan(16, 0));
    for socket in dying_nodes(folder.path()) {
        for goes_on in [true, false] {
            let (of_connect, of_fallback, socket) = (Arc::clone(&plan), Arc::clone(&plan), socket.clone());
            let connect: Connect = Box::new(move |job_progress| {
                let feed =
                    NodeFeed::attach(&socket, &of_connect, job_progress, CoreWeight::ONE).map_err(Error::from)?;
                Ok(Arc::new(feed) as Arc<dyn Feed>)
            });
            let fallback: Connect = Box::new(move |job_progress| {
                let carousel = Carousel::start(&of_fallback, &Machine::default(), Memory::Heap, 64 << 20)?;
                Ok(Arc::new(LocalFeed::join(&Arc::new(carousel), job_progress)?))
            });
            let loader = Loader::shared(&plan, connect, goes_on.then_some(fallback)).unwrap();
            let iteration = loader.begin().unwrap();
            match next(&loader, iteration) {
                Ok(first) => {
                    assert!(goes_on);
                    let rest = std::iter::from_fn(|| next(&loader, iteration).unwrap());
                    check_all_once(&ids(&first.into_iter().chain(rest).collect::<Vec<_>>()));
                }
                Err(error) => assert!(!goes_on && matches!(error, Error::Node { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn law_7_a_rank_whose_node_goes_before_or_while_it_attaches_goes_on_alone_if_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let plan = feedline_data::testing::open_for(
        feedline_order::Rank { rank: 0, world: 2 },
        "batch_size = 4\nshuffle = true\n[source]\nkind = \"synthetic\"\nn = 40\nshape = [8]\n",
    )
    .unwrap();
    let alone = feedline_engine::testing::collect(&Loader::new(Arc::clone(&plan), &Machine::default())).unwrap();
    for socket in dying_nodes(folder.path()) {
        for continues in [true, false] {
            let (of_open, socket) = (Arc::clone(&plan), socket.clone());
            let open: Open = Box::new(move |received, metrics| {
                let batches = NodeBatches::attach(&socket, &of_open, received.cursor(), metrics, CoreWeight::ONE)
                    .map_err(Error::from)?;
                Ok(Arc::new(batches) as Arc<dyn Deliverer>)
            });
            let loader = Loader::from_node(Arc::clone(&plan), &Machine::default(), open, continues);
            match feedline_engine::testing::collect(&loader) {
                Ok(batches) => {
                    assert!(continues);
                    assert!(ids(&batches) == ids(&alone));
                }
                Err(error) => assert!(!continues && matches!(error, Error::Node { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn jobs_that_cannot_be_served_hear_why() {
    let folder = tempfile::tempdir().unwrap();
    let (small, plan) = (node_of(folder.path(), 1000).unwrap(), plan(16, 0));
    let refused = attach_at(small.path(), &plan, None).unwrap_err().to_string();
    assert!(refused.contains("shared memory") && refused.contains("1000"), "{refused}");
    assert!(node_of(folder.path(), 1000).is_err(), "one node at a place");
    let nobody = attach_at(&folder.path().join("run/other.sock"), &plan, None).unwrap_err();
    assert!(matches!(nobody, AttachError::NodeSocket(_)), "{nobody}");
}

#[test]
fn law_7_a_job_that_holds_a_segment_and_reads_nothing_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let idle = attach(&node, &plan);
    let iteration = idle.begin().unwrap();
    let held = next(&idle, iteration).unwrap();
    let loader = attach(&node, &plan);
    for _ in 0..10 {
        check_all_once(&ids(&epoch(&loader)));
    }
    assert_eq!(held.unwrap().len, 16);
}

#[test]
fn junk_on_the_socket_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let loader = attach(&node, &plan);
    for junk in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"FLN1", b""] {
        let mut stream = std::os::unix::net::UnixStream::connect(node.path()).unwrap();
        // The node may have closed the connection in the middle of it.
        stream.write_all(junk).unwrap_or_default();
    }
    check_all_once(&ids(&epoch(&loader)));
}

/// Header and body of a page.
fn page(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    (head.to_lowercase(), body.to_owned())
}

/// The paths in a document without the values, which change while a node works.
fn names(json: &serde_json::Value) -> Vec<Vec<String>> {
    let keys = |of: &serde_json::Value| of.as_object().unwrap().keys().cloned().collect();
    [json, &json["runs"][0], &json["runs"][0]["engine"], &json["jobs"][0]].map(keys).to_vec()
}

#[test]
fn a_node_says_over_http_what_top_says_and_names_every_run_and_job() {
    let folder = tempfile::tempdir().unwrap();
    let http = Some("127.0.0.1:0".parse().unwrap());
    let node = Node::start(NodeConfig { http, ..config(folder.path()) }).unwrap();
    let address = node.http_address().unwrap();
    assert!(page(address, "/metrics").1.contains("feedline_node_jobs 0\n"));
    assert_eq!(page(address, "/health").1, "serving\n");
    // Two jobs of one process on one run.
    let loaders = [attach(&node, &plan(16, 0)), attach(&node, &plan(10, 1))];
    for loader in &loaders {
        check_all_once(&ids(&epoch(loader)));
    }
    let over_http: serde_json::Value = serde_json::from_str(&page(address, "/stats").1).unwrap();
    let over_socket: serde_json::Value = serde_json::from_str(&fetch_stats(node.path()).unwrap()).unwrap();
    assert_eq!(names(&over_http), names(&over_socket));
    for stats in [&over_http, &over_socket] {
        // Only values that no longer change after the epochs have been read.
        let (run, jobs) = (&stats["runs"][0], stats["jobs"].as_array().unwrap());
        assert_eq!((stats["jobs_attached_total"].as_u64(), stats["memory_bytes"].as_u64()), (Some(2), Some(64 << 20)));
        assert_eq!((run["leased_samples"].as_u64(), run["samples"].as_u64()), (Some(2 * SAMPLES), Some(SAMPLES)));
        assert_eq!((jobs.len(), jobs[0]["process"].as_u64()), (2, Some(u64::from(std::process::id()))));
        assert_ne!(jobs[0]["job"], jobs[1]["job"]);
        assert!(jobs.iter().all(|job| job["key"] == run["key"] && job["samples"].as_u64() == Some(SAMPLES)), "{stats}");
    }
    let (head, metrics) = page(address, "/metrics");
    assert!(head.contains("version=0.0.4"), "{head}");
    let key = over_http["runs"][0]["key"].as_str().unwrap();
    for line in [
        format!("feedline_node_delivered_samples_total{{run=\"{key}\"}} {}\n", 2 * SAMPLES),
        format!("feedline_node_job_samples_total{{run=\"{key}\",job=\"{}\",", over_http["jobs"][1]["job"]),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    drop(node);
    assert!(TcpStream::connect(address).is_err(), "pages end with the node");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn prometheus_and_the_document_say_the_same_of_one_look_at_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path());
    let loaders = [attach(&node, &plan(16, 0)), attach(&node, &plan(10, 1))];
    for loader in &loaders {
        check_all_once(&ids(&epoch(loader)));
    }
    // One snapshot in both forms: a second one would have other numbers.
    let look = node.stats();
    let (metrics, stats) = (look.exposition().text(), serde_json::to_value(&look).unwrap());
    let (run, jobs) = (&stats["runs"][0], stats["jobs"].as_array().unwrap());
    let key = run["key"].as_str().unwrap();
    for line in [
        format!("feedline_node_produced_samples_total{{run=\"{key}\"}} {}\n", run["produced_samples"]),
        format!("feedline_node_run_shared_ratio{{run=\"{key}\"}} {}\n", run["leased_per_produced"]),
        format!("feedline_node_memory_bytes {}\n", stats["live_bytes"]),
        format!("feedline_node_stall_seconds_total{{run=\"{key}\",cause=\"prepare\"}} "),
        format!("feedline_node_job_samples_total{{run=\"{key}\",job=\"{}\",", jobs[1]["job"]),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    let series: Vec<&str> = metrics.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    assert_eq!(series.len(), series.iter().collect::<BTreeSet<_>>().len(), "each series once: {metrics}");
}

#[test]
fn all_waiting_of_jobs_is_booked_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let loader = attach(&node, &plan);
    check_all_once(&ids(&epoch(&loader)));
    let causes = |of: &BTreeMap<&'static str, f64>| of.values().sum::<f64>();
    // A wait is recorded first for the job and then for its run.
    wait_until("the waits of the job are those of its run", || {
        let stats = node.stats();
        let (job, run) = (causes(&stats.jobs[0].stall_seconds), causes(&stats.runs[0].carousel.engine.stall_seconds));
        job > 0.0 && (job - run).abs() < 1e-6
    });
}

#[test]
fn the_page_of_a_node_is_whole_and_may_ask_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let http = Some("[::1]:0".parse().unwrap());
    let node = Node::start(NodeConfig { http, ..config(folder.path()) }).unwrap();
    let address = node.http_address().unwrap();
    let (head, html) = page(address, "/");
    assert!(head.contains("content-security-policy: default-src 'none';") && head.contains("text/html"), "{head}");
    // The files that the page names, and those that these name.
    let mut files = vec![("node.css".to_owned(), "text/css")];
    let script =
        |line: &str| Some((line.split_once("from \"./")?.1.strip_suffix("\";")?.to_owned(), "text/javascript"));
    assert!(html.contains("href=\"node.css\"") && html.contains("src=\"node.js\""), "{html}");
    files.push(("node.js".to_owned(), "text/javascript"));
    let mut seen = 0;
    while let Some((file, kind)) = files.pop() {
        let (head, text) = page(address, &format!("/{file}"));
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert!(!text.replace("http://www.w3.org/2000/svg", "").contains("://"), "{file} needs nothing from elsewhere");
        files.extend(text.lines().filter_map(script));
        seen += 1;
    }
    assert_eq!(seen, 4);
    let outside = "0.0.0.0:0".parse().unwrap();
    let second = tempfile::tempdir().unwrap();
    let refused = Node::start(NodeConfig { http: Some(outside), ..config(second.path()) });
    assert!(matches!(refused, Err(NodeError::HttpForOthers { .. })));
    let taken = Node::start(NodeConfig { http: Some(address), ..config(second.path()) });
    assert!(matches!(taken, Err(NodeError::Http(_))));
    assert_eq!(std::fs::read_dir(second.path()).unwrap().count(), 0, "what cannot start leaves nothing behind");
}
