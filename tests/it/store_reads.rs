//! The reads of every store: orders, items, the feed; and what keeps the log append-only (promises P4, P6, P8).

use std::collections::BTreeMap;

use paidonce_order::command::{OrderCommand, PaymentRef, RefundOrigin};
use paidonce_order::ids::{AccountRef, ChannelTradeNo};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Status};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::StoreError;
use paidonce_store::store::{Attempt, EventRow, OnlyOpen, OrderFilter, RowCounts, Target};
use paidonce_tests::ledger::{
    Ledger, Place, account, open_work, order_no, pay_work, refund_work, stray_work, trade_no,
};

on_every_store! {
    an_order_reads_the_same_from_its_events_and_its_row;
    what_is_not_there_is_none_and_not_an_error;
    orders_are_found_by_status_time_and_channel_number;
    a_payment_leads_to_its_order_booked_or_parked;
    items_are_listed_newest_first_page_by_page;
    gauges_count_what_waits;
    automatic_refunds_of_an_account_are_found_by_their_time;
    the_feed_is_gapless_and_complete_while_eight_writers_append;
    attempts_of_an_order_are_read_newest_first;
    a_cursor_that_no_page_gave_is_refused;
}

on_both_databases! {
    a_hole_in_the_log_is_an_error_and_never_skipped;
}

async fn an_order_reads_the_same_from_its_events_and_its_row(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("ORDER-1").await;
    ledger.pay("ORDER-2").await;
    let number = order_no("ORDER-1");
    let order = ledger.store.find_order(&number).await.expect("find").expect("some");
    let row = ledger.store.find_order_row(&number).await.expect("find").expect("some");
    assert_eq!((order.status, row.status), (Status::Paid, Status::Paid));
    assert_eq!((order.version, row.version), (2, 2));
    assert_eq!((row.paid_minor, row.account.as_ref()), (8_888, Some(&account())));
    assert_eq!(row.channel_trade_no, Some(trade_no("ORDER-1")));

    let events = ledger.store.list_order_events(&number).await.expect("list");
    let shape: Vec<_> = events.iter().map(|event| (event.sequence, event.event_type.as_str())).collect();
    assert_eq!(shape, [(1, "OrderOpened"), (2, "PaymentConfirmed")]);
    assert!(events.iter().all(|event| event.shard == number.shard() && event.aggregate_id == "ORDER-1"));
    assert!(events[0].position < events[1].position && events[0].recorded_at <= events[1].recorded_at);

    let flows = ledger.store.list_order_flows(&number).await.expect("list");
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].idem_key.as_str(), "WXPAY:ORDER-1:PAY");
    assert_eq!(flows[0].amount.amount_minor, 8_888);
    let counts = ledger.store.count_rows(&number).await.expect("count");
    let expected = RowCounts { events: 2, idempotent: 1, order: 1, flows: 1, deliveries: 2, delivered: 0 };
    assert_eq!(counts, expected);
}

async fn what_is_not_there_is_none_and_not_an_error(ledger: Ledger) {
    let number = order_no("NOBODY");
    assert!(ledger.store.find_order(&number).await.expect("find").is_none());
    assert!(ledger.store.find_order_row(&number).await.expect("find").is_none());
    assert!(ledger.store.list_order_events(&number).await.expect("list").is_empty());
    assert!(ledger.store.list_order_flows(&number).await.expect("list").is_empty());
    assert!(ledger.store.find_item("nothing").await.expect("find").is_none());
    assert!(ledger.store.find_order_by_trade_no(&account(), &trade_no("X")).await.expect("find").is_none());
    assert_eq!(ledger.store.count_rows(&number).await.expect("count"), RowCounts::default());
    assert!(ledger.store.resolve_quarantined("nothing", "li").await.is_err());
}

async fn found(ledger: &Ledger, filter: OrderFilter) -> Vec<String> {
    let rows = ledger.store.list_orders(&filter).await.expect("list");
    rows.into_iter().map(|row| row.order_no.to_string()).collect()
}

async fn orders_are_found_by_status_time_and_channel_number(ledger: Ledger) {
    ledger.commit(open_work("C")).await;
    ledger.pay("A").await;
    ledger.pay("B").await;
    let middle = ledger.store.list_order_events(&order_no("B")).await.expect("list").remove(0).recorded_at;
    ledger.advance_ms(60_000);
    ledger.commit(open_work("D")).await;
    let filter = OrderFilter { limit: 10, ..OrderFilter::default() };
    assert_eq!(found(&ledger, filter.clone()).await, ["A", "B", "C", "D"]);
    assert_eq!(found(&ledger, OrderFilter { status: Some(Status::Paid), ..filter.clone() }).await, ["A", "B"]);
    assert_eq!(found(&ledger, OrderFilter { status: Some(Status::Closed), ..filter.clone() }).await, [""; 0]);
    assert_eq!(found(&ledger, OrderFilter { after: Some(order_no("B")), ..filter.clone() }).await, ["C", "D"]);
    assert_eq!(found(&ledger, OrderFilter { limit: 2, ..OrderFilter::default() }).await, ["A", "B"]);
    let later = middle.plus_micros(30_000_000);
    assert_eq!(found(&ledger, OrderFilter { from: Some(later), ..filter.clone() }).await, ["D"]);
    assert_eq!(found(&ledger, OrderFilter { to: Some(later), ..filter.clone() }).await, ["A", "B", "C"]);
    let numbered = OrderFilter { channel_trade_no: Some(trade_no("B")), ..filter };
    assert_eq!(found(&ledger, numbered.clone()).await, ["B"]);
    assert_eq!(found(&ledger, OrderFilter { status: Some(Status::Pending), ..numbered }).await, [""; 0]);
}

/// P6: share notices carry only the channel's number.
async fn a_payment_leads_to_its_order_booked_or_parked(ledger: Ledger) {
    ledger.pay("BOOKED").await;
    ledger.commit(pay_work("PARKED")).await;
    let lookup = async |account: &AccountRef, number: &ChannelTradeNo| {
        let order = ledger.store.find_order_by_trade_no(account, number).await.expect("find");
        order.map(|order| order.to_string())
    };
    assert_eq!(lookup(&account(), &trade_no("BOOKED")).await.as_deref(), Some("BOOKED"));
    assert_eq!(lookup(&account(), &trade_no("PARKED")).await.as_deref(), Some("PARKED"));
    let other = AccountRef::parse("wxpay:1900000002").unwrap();
    assert_eq!(lookup(&other, &trade_no("BOOKED")).await, None);
    assert_eq!(lookup(&other, &trade_no("PARKED")).await, None);
}

async fn items_are_listed_newest_first_page_by_page(ledger: Ledger) {
    for number in 0..5 {
        ledger.commit(pay_work(&format!("EARLY-{number}"))).await;
        ledger.advance_ms(1_000);
    }
    ledger.commit(stray_work(9)).await;
    // Opening the order decides what was parked.
    ledger.commit(open_work("EARLY-0")).await;
    let list = async |kind, open_only, after: Option<&str>, limit| {
        ledger.store.list_items(kind, open_only, after, limit).await.expect("list")
    };
    let open = list(None, OnlyOpen::Yes, None, 10).await;
    assert_eq!(open.len(), 5);
    assert_eq!((open[0].kind, open[0].order_no.as_deref()), (ItemKind::Stray, None));
    assert!(open[0].stray_id.is_some());
    assert!(open.is_sorted_by(|a, b| a.opened_at >= b.opened_at));
    let parked = list(Some(ItemKind::Parked), OnlyOpen::No, None, 10).await;
    assert_eq!(parked.len(), 5, "closed ones too");
    let closed = parked.iter().find(|item| item.order_no.as_deref() == Some("EARLY-0")).expect("there");
    assert!(closed.state != "open" && closed.closed_at.is_some());

    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = list(None, OnlyOpen::No, after.as_deref(), 2).await;
        after = page.last().map(|item| item.item_no.clone());
        if page.is_empty() {
            break;
        }
        pages.extend(page);
    }
    assert_eq!(pages, list(None, OnlyOpen::No, None, 100).await);
    assert_eq!(ledger.store.find_item(&pages[0].item_no).await.expect("find").as_ref(), Some(&pages[0]));
    let unknown = ledger.store.list_items(None, OnlyOpen::No, Some("nothing"), 2).await;
    assert!(matches!(unknown, Err(StoreError::Invalid(_))));
}

/// What the breaker of automatic refunds counts: not what people asked for, not other accounts, not what is long ago.
async fn automatic_refunds_of_an_account_are_found_by_their_time(ledger: Ledger) {
    let second = PaymentRef { account: account(), channel_trade_no: trade_no("SECOND") };
    let automatic = |number: &str| {
        let mut work = refund_work("A", number);
        if let Target::Order { command: OrderCommand::RequestRefund(request), .. } = &mut work.target {
            request.origin = RefundOrigin::Surplus;
            request.payment = Some(second.clone());
        }
        work
    };
    ledger.pay("A").await;
    let mut again = pay_work("A");
    if let Target::Order { command: OrderCommand::RecordPayment(fact), .. } = &mut again.target {
        fact.payment = second.clone();
    }
    ledger.commit(again).await;
    ledger.commit(refund_work("A", "BY-HAND")).await;
    ledger.commit(automatic("EARLIER")).await;
    ledger.advance_ms(7_200_000);
    ledger.commit(automatic("NOW")).await;
    let events = ledger.store.list_order_events(&order_no("A")).await.expect("events");
    let found = async |account: &AccountRef, since: &EventRow| {
        ledger.store.list_surplus_refunds(account, since.recorded_at).await.expect("read").expect("not a full page")
    };
    assert_eq!(found(&account(), &events[5]).await, [Money::fen(100)]);
    assert_eq!(found(&account(), &events[0]).await, [Money::fen(100), Money::fen(100)]);
    assert!(found(&AccountRef::parse("wxpay:1900000002").unwrap(), &events[0]).await.is_empty());
}

async fn gauges_count_what_waits(ledger: Ledger) {
    ledger.subscribe("warehouse").await;
    ledger.pay("A").await;
    ledger.commit(pay_work("EARLY")).await;
    ledger.store.claim_effects(&["deliver"], 30_000, 1).await.expect("claim");
    let gauges = ledger.store.gauges().await.expect("gauges");
    let effects: BTreeMap<_, _> = gauges.effects.into_iter().collect();
    let items: BTreeMap<_, _> = gauges.items_open.into_iter().collect();
    // Two deliveries and the poll of A wait.
    assert_eq!(effects, BTreeMap::from([("dead".into(), 0), ("leased".into(), 1), ("pending".into(), 3)]));
    assert_eq!((items.len(), items["parked"], items["stray"]), (6, 1, 0));
    assert_eq!((gauges.events_total, gauges.attempts_dropped), (3, 0));
}

/// Checks that a page goes on where the page before ended, in every shard.
fn follow(positions: &mut BTreeMap<u16, i64>, page: &[EventRow]) {
    for event in page {
        let position = positions.entry(event.shard).or_default();
        assert_eq!(event.position, *position + 1, "shard {} has a hole", event.shard);
        *position = event.position;
    }
}

/// CON-05, P8: a reader that pages while others write sees everything once, in each shard without a gap.
async fn the_feed_is_gapless_and_complete_while_eight_writers_append(ledger: Ledger) {
    const ORDERS: usize = 12;
    let writers = (0..8).map(|writer| {
        let ledger = &ledger;
        async move {
            for order in 0..ORDERS {
                ledger.pay(&format!("W{writer}-{order}")).await;
            }
        }
    });
    let reader = async {
        let (mut cursor, mut seen, mut positions) = (String::new(), Vec::new(), BTreeMap::new());
        while seen.len() < 8 * ORDERS * 2 {
            let page = ledger.store.read_feed(&cursor, 7).await.expect("read");
            assert!(page.events.len() <= 7);
            assert!(page.events.is_sorted_by_key(|event| (event.recorded_at, event.shard, event.position)));
            follow(&mut positions, &page.events);
            cursor = page.next_cursor;
            seen.extend(page.events);
            tokio::task::yield_now().await;
        }
        (cursor, seen)
    };
    let (_, (cursor, seen)) = tokio::join!(futures_util::future::join_all(writers), reader);
    let end = ledger.store.read_feed(&cursor, 100).await.expect("read");
    assert!(end.events.is_empty());
    assert_eq!(end.heads.iter().map(|head| head.position).sum::<i64>(), i64::try_from(seen.len()).unwrap());
    let ids: std::collections::BTreeSet<_> = seen.iter().map(|event| event.event_id).collect();
    assert_eq!(ids.len(), seen.len());
    let whole = ledger.store.read_feed("", 1_000).await.expect("read");
    assert_eq!(whole.events.len(), seen.len());
    assert_eq!(whole.next_cursor, cursor, "however the pages were cut, the end is the same");
}

async fn a_cursor_that_no_page_gave_is_refused(ledger: Ledger) {
    ledger.pay("A").await;
    let cursor = ledger.store.read_feed("", 10).await.expect("read").next_cursor;
    let shorter = &cursor[..cursor.len() - 1];
    let changed = if cursor.starts_with('A') { cursor.replacen('A', "B", 1) } else { format!("A{}", &cursor[1..]) };
    for bad in [shorter, changed.as_str(), "x", "../../etc", "0", "AQ"] {
        let refused = ledger.store.read_feed(bad, 10).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{bad}");
    }
    // From a ledger that is further.
    let other = Ledger::sqlite().await;
    for number in ["A", "B", "C"] {
        other.pay(number).await;
    }
    let ahead = other.store.read_feed("", 10).await.expect("read").next_cursor;
    assert!(matches!(ledger.store.read_feed(&ahead, 10).await, Err(StoreError::Invalid(_))));
}

/// P8: whoever removes an event by force is found out by the next reader.
async fn a_hole_in_the_log_is_an_error_and_never_skipped(ledger: Ledger) {
    ledger.pay("A").await;
    let drop_trigger = match &ledger.place {
        Place::Postgres(_) => "ALTER TABLE events DISABLE TRIGGER events_append_only",
        Place::Sqlite(..) => "DROP TRIGGER events_no_delete",
        Place::Memory => unreachable!("runs on databases"),
    };
    ledger.try_execute(drop_trigger).await.expect("by force");
    ledger.try_execute("DELETE FROM events WHERE sequence = 1").await.expect("by force");
    assert!(matches!(ledger.store.read_feed("", 10).await, Err(StoreError::Corrupt(_))));
    assert!(matches!(ledger.store.find_order(&order_no("A")).await, Err(StoreError::Corrupt(_))));
}

/// What `explain` shows of the messages that changed nothing.
async fn attempts_of_an_order_are_read_newest_first(ledger: Ledger) {
    let at = |second: i64| Timestamp::from_micros((1_736_339_696 + second) * 1_000_000);
    for (second, order) in [(1, "ORDER-1"), (3, "ORDER-1"), (2, "ORDER-1"), (4, "OTHER")] {
        ledger.store.note_attempt(Attempt {
            at: at(second),
            account: account(),
            order_no: Some(order_no(order)),
            result: "duplicate".to_owned(),
            detail: format!("push {second}"),
        });
    }
    let number = order_no("ORDER-1");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut kept = ledger.store.list_attempts(&number, 10).await.expect("list");
    while kept.len() < 3 && std::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        kept = ledger.store.list_attempts(&number, 10).await.expect("list");
    }
    assert!(kept.iter().all(|attempt| attempt.order_no.as_ref() == Some(&number)), "{kept:?}");
    let seconds = |attempts: &[Attempt]| -> Vec<String> { attempts.iter().map(|a| a.detail.clone()).collect() };
    assert_eq!(seconds(&kept), ["push 3", "push 2", "push 1"]);
    let newest = ledger.store.list_attempts(&number, 2).await.expect("list");
    assert_eq!(seconds(&newest), ["push 3", "push 2"]);
}
