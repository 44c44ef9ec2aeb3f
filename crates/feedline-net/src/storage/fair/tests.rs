use super::*;

fn fair() -> FairQueue {
    FairQueue::new(1 << 30)
}

fn frame(request: u64) -> Frame {
    Frame::new(request, &(), Vec::new()).unwrap()
}

fn reply(request: u64, megabytes: usize) -> Frame {
    Frame::new(request, &(), vec![0; megabytes << 20]).unwrap()
}

fn put(fair: &FairQueue, number: u64, requests: std::ops::Range<u64>) {
    requests.for_each(|request| assert!(fair.put_request(number, frame(request), Admission::Free)));
}

/// Takes a reply like a client.
fn send(fair: &FairQueue, number: u64) {
    let NextReply::Reply(reply) = fair.next_reply(number, Duration::ZERO) else { panic!("no reply waits") };
    fair.sent(number, reply.wire_bytes(), Duration::ZERO);
}

/// Serves the next request with a reply of some megabytes. Returns its connection, and whether there was room.
fn work(fair: &FairQueue, megabytes: usize) -> (u64, bool) {
    let (mut reservation, request) = fair.next_request().unwrap();
    let number = reservation.number;
    match reservation.reserve((megabytes as u64) << 20) {
        Ok(()) => {
            fair.put_reply(reservation, reply(request.0.request, megabytes));
            (number, true)
        }
        Err(NoMemory::NotNow { bytes }) => {
            fair.put_back(reservation, request, bytes);
            (number, false)
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn connections_take_turns_whatever_each_asks_for() {
    let fair = fair();
    let (busy, quiet) = (fair.enter(9).unwrap(), fair.enter(9).unwrap());
    put(&fair, busy, 0..100);
    put(&fair, quiet, 1000..1001);
    let first: Vec<u64> = (0..3).map(|_| work(&fair, 0).0).collect();
    assert_eq!(first, [busy, quiet, busy]);
}

#[test]
fn law_5_a_client_that_takes_no_replies_gets_no_more_requests_done() {
    let fair = fair();
    let (slow, other) = (fair.enter(9).unwrap(), fair.enter(9).unwrap());
    put(&fair, slow, 0..20);
    let mut done = 0;
    while fair.state.lock().connections[&slow].has_turn {
        assert_eq!(work(&fair, 1), (slow, true));
        done += 1;
    }
    assert!((8..=9).contains(&done), "{done} replies of a megabyte wait");
    put(&fair, other, 7..8);
    assert_eq!(work(&fair, 0).0, other);
    (0..2).for_each(|_| send(&fair, slow));
    assert_eq!(work(&fair, 0).0, slow);
    let third = fair.enter(9).unwrap();
    assert_eq!(fair.next_reply(third, Duration::from_millis(1)), NextReply::NotYet);
}

#[test]
fn law_5_all_connections_together_stay_within_one_budget_and_replies_wait_for_room() {
    let fair = FairQueue::new(40 << 20);
    let greedy: Vec<u64> = (0..5).map(|_| fair.enter(9).unwrap()).collect();
    for &number in &greedy {
        put(&fair, number, 0..1);
    }
    let made: Vec<(u64, bool)> = (0..5).map(|_| work(&fair, 16)).collect();
    assert_eq!(made.iter().filter(|(_, has_room)| *has_room).count(), 2, "{made:?}");
    assert!(fair.usage().1 <= 40 << 20, "{} bytes", fair.usage().1);
    // Small replies still have room for connections without queued replies.
    let modest = fair.enter(9).unwrap();
    put(&fair, modest, 0..1);
    assert_eq!(work(&fair, 1), (modest, true));
    send(&fair, modest);
    // Each reply that is taken makes room for the next one.
    for turn in 0..3 {
        send(&fair, greedy[turn]);
        assert_eq!(work(&fair, 16), (greedy[turn + 2], true));
    }
    assert!(fair.usage().1 <= 40 << 20, "{} bytes", fair.usage().1);
    for number in greedy {
        fair.leave(number);
    }
    assert_eq!(fair.usage(), (1, 0));
}

#[test]
fn a_reply_that_is_longer_than_all_memory_is_made_alone() {
    let fair = FairQueue::new(1 << 20);
    let (first, second) = (fair.enter(9).unwrap(), fair.enter(9).unwrap());
    put(&fair, first, 0..1);
    put(&fair, second, 0..1);
    assert_eq!(work(&fair, 4), (first, true));
    assert_eq!(work(&fair, 4), (second, false));
    fair.leave(first);
    assert_eq!(work(&fair, 4), (second, true));
}

#[test]
fn what_was_booked_and_not_used_is_free_again() {
    let fair = FairQueue::new(10 << 20);
    let number = fair.enter(9).unwrap();
    put(&fair, number, 0..2);
    let (mut reservation, request) = fair.next_request().unwrap();
    reservation.reserve(9 << 20).unwrap();
    fair.put_reply(reservation, frame(request.0.request));
    assert!(fair.usage().1 < 1 << 20);
    let (mut reservation, _) = fair.next_request().unwrap();
    reservation.reserve(3 << 20).unwrap();
    drop(reservation);
    assert!(fair.usage().1 < 1 << 20);
}

#[test]
fn long_requests_of_all_connections_are_few_at_a_time() {
    let fair = fair();
    let number = fair.enter(9).unwrap();
    let mut permits: Vec<_> = (0..LONG_REQUESTS).map(|_| fair.admit(number, 1 << 20).unwrap()).collect();
    assert!(permits.iter().all(|admission| matches!(admission, Admission::Permitted(_))));
    assert!(matches!(fair.admit(number, 100), Some(Admission::Free)), "short ones need no permit");
    let (sender, admitted) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let fair = &fair;
        scope.spawn(move || sender.send(fair.admit(number, 1 << 20).is_some()).unwrap());
        assert!(admitted.recv_timeout(Duration::from_millis(50)).is_err());
        permits.pop();
        assert!(admitted.recv_timeout(Duration::from_mins(1)).unwrap());
    });
    let _all: Vec<_> = (permits.len()..LONG_REQUESTS).map(|_| fair.admit(number, 1 << 20).unwrap()).collect();
    fair.leave(number);
    assert!(fair.admit(number, 1 << 20).is_none(), "one that is gone does not wait");
}

#[test]
fn no_more_connections_than_allowed_and_all_end_with_the_server() {
    let fair = fair();
    let number = fair.enter(1).unwrap();
    assert!(fair.enter(1).is_none());
    fair.leave(number);
    let number = fair.enter(1).unwrap();
    fair.close();
    assert!(fair.next_request().is_none() && fair.enter(1).is_none());
    assert_eq!(fair.next_reply(number, Duration::from_mins(1)), NextReply::Ended);
    assert!(!fair.put_request(number, frame(1), Admission::Free));
}

#[test]
fn a_burst_of_one_connection_is_served_by_all_workers() {
    let fair = fair();
    let number = fair.enter(9).unwrap();
    let (taken, served) = std::sync::mpsc::channel();
    let round = std::sync::Barrier::new(3);
    let are_all_served = std::thread::scope(|scope| {
        for _ in 0..2 {
            let (fair, round, taken) = (&fair, &round, taken.clone());
            scope.spawn(move || {
                while let Some(request) = fair.next_request() {
                    taken.send(()).unwrap();
                    // Each worker keeps its request until the other has one too.
                    round.wait();
                    drop(request);
                }
            });
        }
        let are_all_served = (0..30).all(|_| {
            // Usually both workers wait by now. The test also holds if they do not.
            std::thread::sleep(Duration::from_millis(1));
            put(&fair, number, 0..2);
            let served = (0..2).all(|_| served.recv_timeout(Duration::from_mins(1)).is_ok());
            if served {
                round.wait();
            }
            served
        });
        fair.close();
        if !are_all_served {
            // Frees the worker that waits for the other one.
            scope.spawn(|| round.wait());
            round.wait();
        }
        are_all_served
    });
    assert!(are_all_served, "a request waits although a worker is idle");
}
