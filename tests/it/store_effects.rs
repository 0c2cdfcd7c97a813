//! The effect queue of every store: lanes, leases, the dead, pauses and backfills (promises P1 and P7).

use std::collections::BTreeSet;

use paidonce_store::store::{Backfill, CHANNEL_KINDS, ClaimedEffect, EffectRow, TryResult};
use paidonce_tests::ledger::{Ledger, open_work, order_no, pay_work, refund_work, subscriber};
use uuid::Uuid;

const LEASE_MS: i64 = 30_000;

on_every_store! {
    a_lane_keeps_the_order_of_its_events;
    every_subscriber_gets_each_event_once;
    a_dead_effect_blocks_its_lane_and_no_other;
    a_requeued_effect_goes_first_and_the_rest_follows;
    a_discarded_effect_lets_the_next_one_go;
    a_retry_waits_for_its_time_and_its_lane_waits_with_it;
    an_expired_lease_is_taken_over_and_the_late_report_is_rejected;
    two_workers_never_hold_the_same_effect;
    a_paused_subscriber_gets_nothing_until_it_goes_on;
    a_long_backlog_of_one_subscriber_does_not_starve_another;
    a_backfill_tells_the_past_once_and_before_the_present;
    a_backfill_racing_the_writer_gives_each_event_once;
    a_removed_subscriber_leaves_nothing_to_send;
    finished_effects_are_pruned_and_open_ones_are_not;
    the_next_due_time_is_that_of_the_next_that_may_go;
    a_channel_call_waits_for_its_first_due_time;
    a_stuck_call_holds_up_no_other_matter_of_its_order;
}

async fn claim(ledger: &Ledger) -> Vec<ClaimedEffect> {
    ledger.store.claim_effects(&["deliver"], LEASE_MS, 100).await.expect("claim")
}

/// Deliveries in any state, oldest first.
async fn deliveries(ledger: &Ledger, order_no: Option<&str>) -> Vec<EffectRow> {
    let mut rows = ledger.store.list_effects(None, order_no, None, 100).await.expect("list");
    rows.retain(|row| row.kind == "deliver");
    rows
}

async fn report(ledger: &Ledger, claimed: &ClaimedEffect, result: TryResult) -> bool {
    let token = claimed.effect.lease_token.expect("a claimed effect is leased");
    ledger.store.complete_effect(claimed.effect.effect_id, token, &result).await.expect("complete")
}

async fn deliver(ledger: &Ledger, claimed: &ClaimedEffect) {
    assert!(report(ledger, claimed, TryResult::Delivered).await);
}

/// Delivers until nothing is due; what was told, in the order of telling.
async fn drain(ledger: &Ledger) -> Vec<ClaimedEffect> {
    let mut told = Vec::new();
    loop {
        let claimed = claim(ledger).await;
        if claimed.is_empty() {
            return told;
        }
        for one in &claimed {
            deliver(ledger, one).await;
        }
        told.extend(claimed);
    }
}

fn types(claimed: &[ClaimedEffect]) -> Vec<&str> {
    claimed.iter().map(|one| one.event.event_type.as_str()).collect()
}

/// P7: one order's events arrive in the order in which they happened, whoever sends them.
async fn a_lane_keeps_the_order_of_its_events(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("ORDER-1").await;
    let first = claim(&ledger).await;
    assert_eq!(types(&first), ["OrderOpened"]);
    assert_eq!(first[0].effect.attempts, 1);
    assert!(claim(&ledger).await.is_empty(), "the second event waits for the first");
    deliver(&ledger, &first[0]).await;
    let second = claim(&ledger).await;
    assert_eq!(types(&second), ["PaymentConfirmed"]);
    assert_eq!(second[0].effect.event_id, second[0].event.event_id);
    deliver(&ledger, &second[0]).await;
    assert!(claim(&ledger).await.is_empty());
}

/// P1: one effect per event and subscriber.
async fn every_subscriber_gets_each_event_once(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    let mut only_payments = subscriber("books");
    only_payments.events = vec!["PaymentConfirmed".to_owned()];
    ledger.store.put_subscriber(&only_payments, Backfill::No).await.expect("put");
    for number in ["A", "B", "C"] {
        ledger.pay(number).await;
        ledger.store.submit(pay_work(number)).await.expect("a duplicate is an outcome");
    }
    let told = drain(&ledger).await;
    let keys: BTreeSet<_> = told.iter().map(|one| (one.event.event_id, one.effect.subscriber.clone())).collect();
    assert_eq!(keys.len(), told.len(), "nobody hears anything twice");
    assert_eq!(told.iter().filter(|one| one.effect.subscriber == "warehouse").count(), 6);
    assert_eq!(types(&told).iter().filter(|kind| **kind == "PaymentConfirmed").count(), 6);
}

/// P7: what was given up stands in the way of what follows it, of nothing else.
async fn a_dead_effect_blocks_its_lane_and_no_other(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("STUCK").await;
    ledger.pay("FREE").await;
    for one in claim(&ledger).await {
        let result = if one.effect.order_no == "STUCK" {
            TryResult::Dead { error: "410 Gone".to_owned() }
        } else {
            TryResult::Delivered
        };
        assert!(report(&ledger, &one, result).await);
    }
    let rest = drain(&ledger).await;
    assert_eq!(rest.iter().map(|one| one.effect.order_no.as_str()).collect::<Vec<_>>(), ["FREE"]);
    let dead = ledger.store.list_effects(Some("dead"), None, None, 10).await.expect("list");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].last_error.as_deref(), Some("410 Gone"));
    let lane = deliveries(&ledger, Some("STUCK")).await;
    assert_eq!(lane.iter().map(|one| one.state.as_str()).collect::<Vec<_>>(), ["dead", "pending"]);
    // However long it takes.
    ledger.advance_ms(7 * 24 * 3_600_000);
    assert!(claim(&ledger).await.is_empty());
}

async fn kill_head(ledger: &Ledger) -> Uuid {
    ledger.subscribe("warehouse").await;
    ledger.pay("ORDER-1").await;
    let head = claim(ledger).await.remove(0);
    assert!(report(ledger, &head, TryResult::Dead { error: "500".to_owned() }).await);
    assert!(claim(ledger).await.is_empty());
    head.effect.effect_id
}

/// P7: a person sends it again.
async fn a_requeued_effect_goes_first_and_the_rest_follows(ledger: Ledger) {
    let dead = kill_head(&ledger).await;
    assert!(ledger.store.requeue_effect(dead, "li").await.expect("requeue"));
    assert!(!ledger.store.requeue_effect(dead, "li").await.expect("requeue"), "it is not dead any more");
    let again = claim(&ledger).await;
    assert_eq!(again[0].effect.effect_id, dead);
    assert_eq!(again[0].effect.attempts, 1, "counted from zero");
    assert!(again[0].effect.last_error.as_deref().unwrap_or_default().contains("li"));
    deliver(&ledger, &again[0]).await;
    assert_eq!(types(&drain(&ledger).await), ["PaymentConfirmed"]);
}

/// P7: a person lets it go.
async fn a_discarded_effect_lets_the_next_one_go(ledger: Ledger) {
    let dead = kill_head(&ledger).await;
    assert!(ledger.store.discard_effect(dead, "li").await.expect("discard"));
    assert!(!ledger.store.discard_effect(dead, "li").await.expect("discard"));
    let told = drain(&ledger).await;
    assert_eq!(types(&told), ["PaymentConfirmed"]);
    assert!(!ledger.store.discard_effect(told[0].effect.effect_id, "li").await.expect("discard"), "it was delivered");
}

async fn a_retry_waits_for_its_time_and_its_lane_waits_with_it(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("ORDER-1").await;
    let head = claim(&ledger).await.remove(0);
    let result = TryResult::RetryAfter { delay_ms: 60_000, error: "503".to_owned() };
    assert!(report(&ledger, &head, result).await);
    assert!(claim(&ledger).await.is_empty());
    ledger.advance_ms(59_000);
    assert!(claim(&ledger).await.is_empty());
    ledger.advance_ms(1_500);
    let again = claim(&ledger).await;
    assert_eq!(again[0].effect.effect_id, head.effect.effect_id);
    assert_eq!((again.len(), again[0].effect.attempts), (1, 2));
    deliver(&ledger, &again[0]).await;
    assert_eq!(types(&drain(&ledger).await), ["PaymentConfirmed"]);
}

/// RTQ-02: a worker that was away too long has lost its right, and its report changes nothing.
async fn an_expired_lease_is_taken_over_and_the_late_report_is_rejected(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.commit(open_work("ORDER-1")).await;
    let slow = claim(&ledger).await.remove(0);
    ledger.advance_ms(LEASE_MS - 1_000);
    assert!(claim(&ledger).await.is_empty(), "the lease holds");
    ledger.advance_ms(2_000);
    let quick = claim(&ledger).await.remove(0);
    assert_eq!(quick.effect.effect_id, slow.effect.effect_id);
    assert_eq!(quick.effect.attempts, 2, "the lost try counts");
    assert_ne!(quick.effect.lease_token, slow.effect.lease_token);
    for late in [TryResult::Delivered, TryResult::Dead { error: "late".to_owned() }] {
        assert!(!report(&ledger, &slow, late).await);
    }
    let row = deliveries(&ledger, None).await.remove(0);
    assert_eq!((row.state.as_str(), row.lease_token), ("leased", quick.effect.lease_token));
    deliver(&ledger, &quick).await;
    assert!(!report(&ledger, &quick, TryResult::Delivered).await, "once reported, the lease is gone");
}

/// P1: workers on any node divide the due effects among them.
async fn two_workers_never_hold_the_same_effect(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    for number in 0..60 {
        ledger.pay(&format!("ORDER-{number}")).await;
    }
    let second = ledger.second_node().await.unwrap_or_else(|| ledger.store.clone());
    let work = async |store: &dyn paidonce_store::Store| {
        let mut told = Vec::new();
        loop {
            let claimed = store.claim_effects(&["deliver"], LEASE_MS, 7).await.expect("claim");
            for one in &claimed {
                let token = one.effect.lease_token.expect("leased");
                let held = store.complete_effect(one.effect.effect_id, token, &TryResult::Delivered).await;
                assert!(held.expect("complete"), "nobody took it from us");
            }
            let due = store.next_effect_due_ms(&["deliver"]).await.expect("due");
            told.extend(claimed.into_iter().map(|one| one.event));
            if due.is_none() {
                return told;
            }
        }
    };
    let (one, two, three) = tokio::join!(work(&*ledger.store), work(&*second), work(&*second));
    let mut told: Vec<_> = one.into_iter().chain(two).chain(three).map(|event| event.event_id).collect();
    assert_eq!(told.len(), 120);
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 120, "each event was held by one worker only");
}

async fn a_paused_subscriber_gets_nothing_until_it_goes_on(ledger: Ledger) {
    let mut warehouse = subscriber("warehouse");
    warehouse.paused = true;
    ledger.store.put_subscriber(&warehouse, Backfill::No).await.expect("put");
    ledger.pay("ORDER-1").await;
    assert!(claim(&ledger).await.is_empty());
    assert_eq!(ledger.store.next_effect_due_ms(&["deliver"]).await.expect("due"), None);
    warehouse.paused = false;
    ledger.store.put_subscriber(&warehouse, Backfill::No).await.expect("put");
    assert_eq!(types(&drain(&ledger).await), ["OrderOpened", "PaymentConfirmed"]);
}

async fn a_long_backlog_of_one_subscriber_does_not_starve_another(ledger: Ledger) {
    ledger.subscribe("slow").await;
    for number in 0..20 {
        ledger.commit(open_work(&format!("OLD-{number}"))).await;
    }
    ledger.subscribe("quick").await;
    ledger.commit(open_work("NEW")).await;
    let claimed = ledger.store.claim_effects(&["deliver"], LEASE_MS, 4).await.expect("claim");
    assert_eq!(claimed.len(), 4);
    assert!(claimed.iter().any(|one| one.effect.subscriber == "quick"), "everybody has a turn");
}

async fn a_backfill_tells_the_past_once_and_before_the_present(ledger: Ledger) {
    for number in ["A", "B", "C"] {
        ledger.pay(number).await;
    }
    let mut payments = subscriber("books");
    payments.events = vec!["PaymentConfirmed".to_owned()];
    assert_eq!(ledger.store.put_subscriber(&payments, Backfill::All).await.expect("put"), 3);
    assert_eq!(
        ledger.store.put_subscriber(&payments, Backfill::All).await.expect("put"),
        0,
        "a second one adds nothing"
    );
    let told = drain(&ledger).await;
    assert_eq!(types(&told), ["PaymentConfirmed"; 3]);
}

/// P1: with writers at work, a new subscriber hears every event once: nothing missed, nothing twice, each order in order.
async fn a_backfill_racing_the_writer_gives_each_event_once(ledger: Ledger) {
    for number in 0..40 {
        ledger.commit(open_work(&format!("ORDER-{number}"))).await;
    }
    let writer = async {
        let jobs = (0..40).map(|number| ledger.commit(pay_work_owned(number)));
        futures_util::future::join_all(jobs).await;
    };
    let late = async {
        for name in ["late-1", "late-2", "late-3"] {
            ledger.store.put_subscriber(&subscriber(name), Backfill::All).await.expect("put");
        }
    };
    tokio::join!(writer, late);
    let told = drain(&ledger).await;
    for name in ["late-1", "late-2", "late-3"] {
        let own: Vec<_> = told.iter().filter(|one| one.effect.subscriber == name).collect();
        let events: BTreeSet<_> = own.iter().map(|one| one.event.event_id).collect();
        assert_eq!((own.len(), events.len()), (80, 80), "{name}");
        for number in 0..40 {
            let number = format!("ORDER-{number}");
            let lane: Vec<_> = own.iter().filter(|one| one.effect.order_no == number).collect();
            assert!(lane.is_sorted_by_key(|one| one.event.sequence), "{name} {number}");
        }
    }
}

fn pay_work_owned(number: i32) -> paidonce_store::Work {
    pay_work(&format!("ORDER-{number}"))
}

async fn a_removed_subscriber_leaves_nothing_to_send(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("A").await;
    ledger.pay("B").await;
    let held = claim(&ledger).await;
    assert!(report(&ledger, &held[0], TryResult::Dead { error: "500".to_owned() }).await);
    ledger.store.delete_subscriber("warehouse").await.expect("delete");
    ledger.commit(open_work("C")).await;
    assert!(!report(&ledger, &held[1], TryResult::Delivered).await, "its lease went with it");
    assert!(claim(&ledger).await.is_empty());
    let rows = deliveries(&ledger, None).await;
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.state == "discarded"), "{rows:?}");
    assert!(ledger.store.delete_subscriber("warehouse").await.is_err(), "there is none");
    assert!(ledger.store.put_subscriber(&subscriber("channel:x"), Backfill::No).await.is_err(), "a name has no colon");
}

async fn finished_effects_are_pruned_and_open_ones_are_not(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("A").await;
    let first = claim(&ledger).await.remove(0);
    deliver(&ledger, &first).await;
    assert_eq!(ledger.store.prune_effects(3_600_000, 100).await.expect("prune"), 0, "not old enough");
    ledger.advance_ms(3_601_000);
    assert_eq!(ledger.store.prune_effects(3_600_000, 100).await.expect("prune"), 1);
    let counts = ledger.store.count_rows(&order_no("A")).await.expect("count");
    assert_eq!((counts.deliveries, counts.delivered), (1, 0));
    assert_eq!(types(&drain(&ledger).await), ["PaymentConfirmed"]);
}

async fn the_next_due_time_is_that_of_the_next_that_may_go(ledger: Ledger) {
    let due = async || ledger.store.next_effect_due_ms(&["deliver"]).await.expect("due");
    ledger.subscribe("warehouse").await;
    assert_eq!(due().await, None);
    ledger.pay("A").await;
    assert_eq!(due().await, Some(0));
    let head = claim(&ledger).await.remove(0);
    assert!(claim(&ledger).await.is_empty());
    assert!(due().await.expect("some") > 0, "what waits behind a sent one does not keep the relay spinning");
    assert!(report(&ledger, &head, TryResult::RetryAfter { delay_ms: 60_000, error: "503".to_owned() }).await);
    assert!(claim(&ledger).await.is_empty());
    let wait = due().await.expect("some");
    assert!((1..=60_000).contains(&wait), "{wait}");
    assert_eq!(ledger.store.next_effect_due_ms(&["refund"]).await.expect("due"), None, "other kinds wait for others");
}

/// Poll after 15 s, surplus after 10 min, the second refund of a payment a minute after the first: see `FirstDue`.
async fn a_channel_call_waits_for_its_first_due_time(ledger: Ledger) {
    let due = async |kind: &'static str| ledger.store.next_effect_due_ms(&[kind]).await.expect("due");
    ledger.pay("A").await;
    let poll = due("poll").await.expect("an opened order is polled");
    assert!((10_000..=15_000).contains(&poll), "{poll}");
    assert!(ledger.store.claim_effects(CHANNEL_KINDS, LEASE_MS, 10).await.expect("claim").is_empty());
    ledger.commit(refund_work("A", "R1")).await;
    ledger.commit(refund_work("A", "R2")).await;
    let refunds = ledger.store.claim_effects(&["refund"], LEASE_MS, 10).await.expect("claim");
    assert_eq!(
        refunds.iter().map(|one| one.effect.subscriber.as_str()).collect::<Vec<_>>(),
        ["channel:wxpay:1900000001:refund:R1"]
    );
    ledger.advance_ms(20_000);
    let polls = ledger.store.claim_effects(&["poll"], LEASE_MS, 10).await.expect("claim");
    assert_eq!(polls.len(), 1);
    assert_eq!(polls[0].effect.call.as_deref(), Some(r#"{"call":"poll"}"#));
    ledger.advance_ms(45_000);
    let refunds = ledger.store.claim_effects(&["refund"], LEASE_MS, 10).await.expect("claim");
    assert!(refunds.iter().any(|one| one.effect.subscriber.ends_with(":R2")), "its minute is over");
}

/// A lane is (order_no, subscriber): a refund that is stuck for days must not hold up the other refund or a query.
async fn a_stuck_call_holds_up_no_other_matter_of_its_order(ledger: Ledger) {
    ledger.pay("A").await;
    ledger.commit(refund_work("A", "R1")).await;
    let stuck = ledger.store.claim_effects(CHANNEL_KINDS, LEASE_MS, 10).await.expect("claim").remove(0);
    let later = TryResult::RetryAfter { delay_ms: 86_400_000, error: "balance short".to_owned() };
    assert!(report(&ledger, &stuck, later).await);
    ledger.commit(refund_work("A", "R2")).await;
    ledger.advance_ms(70_000);
    let free = ledger.store.claim_effects(CHANNEL_KINDS, LEASE_MS, 10).await.expect("claim");
    let mut kinds: Vec<_> = free.iter().map(|one| one.effect.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["poll", "refund"]);
}
