//! DESIGN section 3, the table: one row per cell. Guards P3, P5 and P6 (every fact has a cell, and no cell drops money).

use super::support::*;
use paidonce_order::OrderCommand;

const T1: (&str, &str) = (WX, "T1");
const T9: (&str, &str) = (WX, "T9");

fn unopened() -> Vec<OrderCommand> {
    vec![]
}

fn pending() -> Vec<OrderCommand> {
    vec![open()]
}

fn paid() -> Vec<OrderCommand> {
    vec![open(), pay(WX, "T1", 8888)]
}

fn refunded_in_full() -> Vec<OrderCommand> {
    vec![open(), pay(WX, "T1", 8888), refunded(T1, "R0", 8888)]
}

fn closed() -> Vec<OrderCommand> {
    vec![open(), close()]
}

/// PENDING, but with money that settles nothing.
fn pending_with_surplus() -> Vec<OrderCommand> {
    vec![open(), pay(WX, "T1", 100)]
}

fn closed_with_surplus() -> Vec<OrderCommand> {
    vec![open(), close(), pay(WX, "T1", 8888)]
}

fn with(mut given: Vec<OrderCommand>, more: OrderCommand) -> Vec<OrderCommand> {
    given.push(more);
    given
}

struct Row {
    cell: &'static str,
    given: Vec<OrderCommand>,
    when: OrderCommand,
    then: &'static str,
}

fn row(cell: &'static str, given: Vec<OrderCommand>, when: OrderCommand, then: &'static str) -> Row {
    Row { cell, given, when, then }
}

fn check(rows: Vec<Row>) {
    for Row { cell, given, when, then } in rows {
        let mut ledger = Ledger::after(given);
        let heard = ledger.hear(when.clone());
        assert_eq!(format!("{heard} => {}", ledger.status().as_str()), then, "{cell}");
        let again = ledger.hear(when);
        assert!(again == "nothing" || again.starts_with("rejected"), "{cell}: told twice, it did {again}");
    }
}

#[test]
fn open_order_in_every_state() {
    let other = || OrderCommand::OpenOrder(terms(paidonce_order::Money::fen(8887), &[WX, ALI]));
    check(vec![
        row("unopened", unopened(), open(), "OrderOpened => PENDING"),
        row("pending, same", pending(), open(), "nothing => PENDING"),
        row("pending, other", pending(), other(), "rejected order_terms_differ => PENDING"),
        row("paid, same", paid(), open(), "nothing => PAID"),
        row("paid, other", paid(), other(), "rejected order_terms_differ => PAID"),
        row("refunded, same", refunded_in_full(), open(), "nothing => REFUNDED"),
        row("refunded, other", refunded_in_full(), other(), "rejected order_terms_differ => REFUNDED"),
        row("closed, same", closed(), open(), "nothing => CLOSED"),
        row("closed, other", closed(), other(), "rejected order_terms_differ => CLOSED"),
    ]);
}

#[test]
fn a_payment_that_matches_the_terms_in_every_state() {
    check(vec![
        row("unopened", unopened(), pay(WX, "T1", 8888), "PaymentParked => UNOPENED"),
        row("pending", pending(), pay(WX, "T1", 8888), "PaymentConfirmed => PAID"),
        row("pending, other account of the terms", pending(), pay(ALI, "T2", 8888), "PaymentConfirmed => PAID"),
        row("paid, same fact", paid(), pay(WX, "T1", 8888), "nothing => PAID"),
        row("paid, second payment", paid(), pay(ALI, "T2", 8888), "SurplusPaymentRecorded => PAID"),
        row("refunded, same fact", refunded_in_full(), pay(WX, "T1", 8888), "nothing => REFUNDED"),
        row("refunded, second", refunded_in_full(), pay(ALI, "T2", 8888), "SurplusPaymentRecorded => REFUNDED"),
        row("closed", closed(), pay(WX, "T1", 8888), "SurplusPaymentRecorded => CLOSED"),
    ]);
}

#[test]
fn a_payment_that_differs_from_the_terms_in_every_state() {
    check(vec![
        row("unopened, amount", unopened(), pay(WX, "T2", 1), "PaymentParked => UNOPENED"),
        row("unopened, account", unopened(), pay(WX2, "T2", 8888), "PaymentParked => UNOPENED"),
        row("pending, amount", pending(), pay(WX, "T2", 1), "SurplusPaymentRecorded => PENDING"),
        row("pending, account", pending(), pay(WX2, "T2", 8888), "SurplusPaymentRecorded => PENDING"),
        row("paid, amount", paid(), pay(WX, "T2", 8889), "SurplusPaymentRecorded => PAID"),
        row("paid, account", paid(), pay(WX2, "T2", 8888), "SurplusPaymentRecorded => PAID"),
        row("refunded, amount", refunded_in_full(), pay(WX, "T2", 1), "SurplusPaymentRecorded => REFUNDED"),
        row("closed, amount", closed(), pay(WX, "T2", 1), "SurplusPaymentRecorded => CLOSED"),
        row("closed, account", closed(), pay(WX2, "T2", 8888), "SurplusPaymentRecorded => CLOSED"),
    ]);
}

#[test]
fn a_known_payment_with_other_content_is_a_conflict_in_every_state() {
    let parked = || vec![pay(WX, "T1", 8888)];
    check(vec![
        row("unopened", parked(), pay(WX, "T1", 1), "FactConflicted => UNOPENED"),
        row("pending", pending_with_surplus(), pay(WX, "T1", 8888), "FactConflicted => PENDING"),
        row("paid, amount", paid(), pay(WX, "T1", 1), "FactConflicted => PAID"),
        row("paid, account", paid(), pay(WX2, "T1", 8888), "FactConflicted => PAID"),
        row("refunded", refunded_in_full(), pay(WX, "T1", 1), "FactConflicted => REFUNDED"),
        row("closed", closed_with_surplus(), pay(WX, "T1", 1), "FactConflicted => CLOSED"),
    ]);
}

#[test]
fn request_refund_in_every_state() {
    let asked = |given| with(given, request(Some(T1), "R1", 100));
    check(vec![
        row("unopened", unopened(), request(Some(T1), "R1", 1), "rejected order_not_opened => UNOPENED"),
        row("pending, no payment", pending(), request(None, "R1", 1), "rejected no_such_payment => PENDING"),
        row("pending, unknown", pending(), request(Some(T9), "R1", 1), "rejected no_such_payment => PENDING"),
        row("pending, a surplus", pending_with_surplus(), request(Some(T1), "R1", 100), "RefundRequested => PENDING"),
        row(
            "pending, too much",
            pending_with_surplus(),
            request(Some(T1), "R1", 101),
            "rejected exceeds_paid => PENDING",
        ),
        row("paid, default payment", paid(), request(None, "R1", 8888), "RefundRequested => PAID"),
        row("paid, too much", paid(), request(None, "R1", 8889), "rejected exceeds_paid => PAID"),
        row("paid, open reserves", asked(paid()), request(None, "R2", 8789), "rejected exceeds_paid => PAID"),
        row("paid, the rest", asked(paid()), request(None, "R2", 8788), "RefundRequested => PAID"),
        row("paid, same again", asked(paid()), request(None, "R1", 100), "nothing => PAID"),
        row("paid, other amount", asked(paid()), request(None, "R1", 99), "rejected refund_terms_differ => PAID"),
        row("refunded", refunded_in_full(), request(None, "R1", 1), "rejected exceeds_paid => REFUNDED"),
        row("closed, no payment", closed(), request(None, "R1", 1), "rejected no_such_payment => CLOSED"),
        row("closed, a surplus", closed_with_surplus(), request(Some(T1), "R1", 8888), "RefundRequested => CLOSED"),
        row("zero", paid(), request(None, "R1", 0), "rejected invalid_terms => PAID"),
        row("negative", paid(), request(None, "R1", -5), "rejected invalid_terms => PAID"),
    ]);
}

#[test]
fn a_refund_of_a_known_payment_in_every_state() {
    let asked = || with(paid(), request(None, "R1", 100));
    check(vec![
        row("pending, done", pending_with_surplus(), refunded(T1, "R1", 100), "RefundConfirmed => PENDING"),
        row("pending, failed", pending_with_surplus(), refund_failed(T1, "R1", 100), "RefundFailed => PENDING"),
        row("pending, stuck", pending_with_surplus(), refund_stalled(T1, "R1", 100), "RefundStalled => PENDING"),
        row("paid, done in part", asked(), refunded(T1, "R1", 100), "RefundConfirmed => PAID"),
        row("paid, done in full", paid(), refunded(T1, "R1", 8888), "RefundConfirmed => REFUNDED"),
        row("paid, failed", asked(), refund_failed(T1, "R1", 100), "RefundFailed => PAID"),
        row("paid, stuck", asked(), refund_stalled(T1, "R1", 100), "RefundStalled => PAID"),
        row(
            "stuck, then done",
            with(asked(), refund_stalled(T1, "R1", 100)),
            refunded(T1, "R1", 100),
            "RefundConfirmed => PAID",
        ),
        row(
            "stuck, then failed",
            with(asked(), refund_stalled(T1, "R1", 100)),
            refund_failed(T1, "R1", 100),
            "RefundFailed => PAID",
        ),
        row(
            "done, then late stuck",
            with(asked(), refunded(T1, "R1", 100)),
            refund_stalled(T1, "R1", 100),
            "nothing => PAID",
        ),
        row(
            "failed, then late stuck",
            with(asked(), refund_failed(T1, "R1", 100)),
            refund_stalled(T1, "R1", 100),
            "nothing => PAID",
        ),
        row(
            "failed is final",
            with(asked(), refund_failed(T1, "R1", 100)),
            refunded(T1, "R1", 100),
            "FactConflicted => PAID",
        ),
        row(
            "done is final",
            with(asked(), refunded(T1, "R1", 100)),
            refund_failed(T1, "R1", 100),
            "FactConflicted => PAID",
        ),
        row("refunded, same fact", refunded_in_full(), refunded(T1, "R0", 8888), "nothing => REFUNDED"),
        row("refunded, other amount", refunded_in_full(), refunded(T1, "R0", 1), "FactConflicted => REFUNDED"),
        row("closed, a surplus", closed_with_surplus(), refunded(T1, "R1", 8888), "RefundConfirmed => CLOSED"),
    ]);
}

#[test]
fn a_refund_of_an_unknown_payment_is_parked_in_every_state() {
    check(vec![
        row("unopened", unopened(), refunded(T9, "R1", 5), "RefundParked => UNOPENED"),
        row("unopened, payment parked", vec![pay(WX, "T9", 8888)], refunded(T9, "R1", 5), "RefundParked => UNOPENED"),
        row("pending", pending(), refunded(T9, "R1", 5), "RefundParked => PENDING"),
        row("paid", paid(), refunded(T9, "R1", 5), "RefundParked => PAID"),
        row("refunded", refunded_in_full(), refunded(T9, "R1", 5), "RefundParked => REFUNDED"),
        row("closed", closed(), refunded(T9, "R1", 5), "RefundParked => CLOSED"),
    ]);
}

#[test]
fn following_a_share() {
    check(vec![
        row("unopened", unopened(), follow(None, "P1"), "rejected order_not_opened => UNOPENED"),
        row("pending, nothing to share", pending(), follow(None, "P1"), "rejected no_such_payment => PENDING"),
        row("pending, surplus named", pending_with_surplus(), follow(Some(T1), "P1"), "ProfitShareFollowed => PENDING"),
        row("paid", paid(), follow(None, "P1"), "ProfitShareFollowed => PAID"),
        row("paid, payment named", paid(), follow(Some(T1), "P1"), "ProfitShareFollowed => PAID"),
        row("paid, payment unknown", paid(), follow(Some(T9), "P1"), "rejected no_such_payment => PAID"),
        row("paid, same again", with(paid(), follow(None, "P1")), follow(Some(T1), "P1"), "nothing => PAID"),
        row("paid, another share", with(paid(), follow(None, "P1")), follow(None, "P2"), "ProfitShareFollowed => PAID"),
        row("paid, unusable number", paid(), follow(None, ""), "rejected invalid_terms => PAID"),
        row("refunded", refunded_in_full(), follow(None, "P1"), "ProfitShareFollowed => REFUNDED"),
        row("closed", closed(), follow(None, "P1"), "rejected no_such_payment => CLOSED"),
    ]);
}

#[test]
fn a_profit_share_in_every_state() {
    check(vec![
        row("unopened", unopened(), share(T1, "P1", "A", 10), "ProfitShareParked => UNOPENED"),
        row("pending", pending(), share(T1, "P1", "A", 10), "ProfitShareParked => PENDING"),
        row("pending, payment known", pending_with_surplus(), share(T1, "P1", "A", 10), "ProfitShareParked => PENDING"),
        row("paid", paid(), share(T1, "P1", "A", 10), "ProfitShareConfirmed => PAID"),
        row("paid, back", paid(), share_back(T1, "B1", 10), "ProfitShareReturned => PAID"),
        row("paid, payment unknown", paid(), share(T9, "P1", "A", 10), "ProfitShareParked => PAID"),
        row("paid, same again", with(paid(), share(T1, "P1", "A", 10)), share(T1, "P1", "A", 10), "nothing => PAID"),
        row(
            "paid, other amount",
            with(paid(), share(T1, "P1", "A", 10)),
            share(T1, "P1", "A", 11),
            "FactConflicted => PAID",
        ),
        row(
            "paid, other receiver",
            with(paid(), share(T1, "P1", "A", 10)),
            share(T1, "P1", "B", 11),
            "ProfitShareConfirmed => PAID",
        ),
        row("refunded", refunded_in_full(), share(T1, "P1", "A", 10), "ProfitShareConfirmed => REFUNDED"),
        row("closed", closed(), share(T1, "P1", "A", 10), "FactFlagged => CLOSED"),
        row("closed, payment known", closed_with_surplus(), share(T1, "P1", "A", 10), "FactFlagged => CLOSED"),
    ]);
}

#[test]
fn a_close_stated_by_the_platform_in_every_state() {
    check(vec![
        row("unopened", unopened(), closed_at(WX), "AttemptClosed => UNOPENED"),
        row("pending, one of two", pending(), closed_at(WX), "AttemptClosed => PENDING"),
        row(
            "pending, the last",
            with(pending(), closed_at(ALI)),
            closed_at(WX),
            "AttemptClosed + OrderClosed => CLOSED",
        ),
        row("paid, where it was paid", paid(), closed_at(WX), "FactFlagged => PAID"),
        row("paid, the other way to pay", paid(), closed_at(ALI), "AttemptClosed => PAID"),
        row("refunded, where it was paid", refunded_in_full(), closed_at(WX), "FactFlagged => REFUNDED"),
        row("closed", closed(), closed_at(WX), "nothing => CLOSED"),
    ]);
}

#[test]
fn close_order_in_every_state() {
    check(vec![
        row("unopened", unopened(), close(), "rejected order_not_opened => UNOPENED"),
        row("pending", pending(), close(), "OrderClosed => CLOSED"),
        row("paid", paid(), close(), "rejected already_paid => PAID"),
        row("refunded", refunded_in_full(), close(), "rejected already_paid => REFUNDED"),
        row("closed", closed(), close(), "nothing => CLOSED"),
    ]);
}

#[test]
fn a_flag_books_nothing_in_any_state() {
    check(vec![
        row("unopened", unopened(), flag("trade_state_disagrees"), "FactFlagged => UNOPENED"),
        row("pending", pending(), flag("trade_state_disagrees"), "FactFlagged => PENDING"),
        row("paid", paid(), flag("trade_state_disagrees"), "FactFlagged => PAID"),
        row("refunded", refunded_in_full(), flag("trade_state_disagrees"), "FactFlagged => REFUNDED"),
        row("closed", closed(), flag("trade_state_disagrees"), "FactFlagged => CLOSED"),
    ]);
}

#[test]
fn a_close_without_a_word_of_the_money_needs_a_person_until_all_of_it_is_back() {
    let flag = || flag("closed_without_refund");
    check(vec![
        row("unopened", unopened(), flag(), "FactFlagged => UNOPENED"),
        row("paid", paid(), flag(), "FactFlagged => PAID"),
        row("partly refunded", with(paid(), refunded(T1, "R1", 1)), flag(), "FactFlagged => PAID"),
        row("refunded", refunded_in_full(), flag(), "nothing => REFUNDED"),
        row("on its way back", with(paid(), request(None, "R1", 8888)), flag(), "nothing => PAID"),
    ]);
}

#[test]
fn an_operator_accepts_a_surplus_only_where_nothing_has_settled() {
    let refunded_surplus = with(pending_with_surplus(), refunded(T1, "R1", 1));
    check(vec![
        row("unopened", unopened(), accept(T1), "rejected no_such_payment => UNOPENED"),
        row("pending", pending_with_surplus(), accept(T1), "SurplusAccepted => PAID"),
        row("pending, unknown", pending_with_surplus(), accept(T9), "rejected no_such_payment => PENDING"),
        row("pending, refunded in part", refunded_surplus, accept(T1), "rejected not_allowed => PENDING"),
        row("paid, the settling one", paid(), accept(T1), "nothing => PAID"),
        row(
            "paid, a second one",
            with(paid(), pay(ALI, "T2", 8888)),
            accept((ALI, "T2")),
            "rejected not_allowed => PAID",
        ),
        row("closed, a late one", closed_with_surplus(), accept(T1), "SurplusAccepted => PAID"),
    ]);
}
