//! Random interleavings against a small independent model of what the channels said. Guards P1, P4 and P6.

use std::collections::{BTreeMap, BTreeSet};

use paidonce_order::command::OrderCommand;
use paidonce_order::idem_key::IDEM_KEY_BYTES_MAX;
use paidonce_order::project::{Direction, ItemChange, TradeType};
use paidonce_order::{LedgerEvent, Order, OrderEvent};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::support::*;

/// A payment that could come in: where, its number, how much.
type Trade = (&'static str, &'static str, i64);

/// Two that match the terms, one of another amount, one of an account that the order doesn't use.
const TRADES: [Trade; 4] =
    [(WX, "T1", 8888), (ALI, "2025010822001", 8888), (ALI, "2025010822002", 500), (WX2, "T4", 8888)];

/// What a channel may say, in the model's own words.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Open,
    Close,
    Paid {
        trade: usize,
    },
    /// One refund of its own amount is done.
    Back {
        trade: usize,
        number: String,
        fen: i64,
    },
    /// With this refund, so much is back in all.
    BackInAll {
        trade: usize,
        number: String,
        fen: i64,
    },
    Stuck {
        trade: usize,
        number: String,
        fen: i64,
    },
    Failed {
        trade: usize,
        number: String,
        fen: i64,
    },
    Asked {
        trade: usize,
        number: String,
        fen: i64,
    },
    Shared {
        trade: usize,
    },
    ClosedAt {
        account: &'static str,
    },
}

impl Said {
    fn command(&self) -> OrderCommand {
        let of = |trade: &usize| (TRADES[*trade].0, TRADES[*trade].1);
        match self {
            Self::Open => open(),
            Self::Close => close(),
            Self::Paid { trade } => pay(TRADES[*trade].0, TRADES[*trade].1, TRADES[*trade].2),
            Self::Back { trade, number, fen } => refunded(of(trade), number, *fen),
            Self::BackInAll { trade, number, fen } => refunded_in_all(of(trade), number, *fen),
            Self::Stuck { trade, number, fen } => refund_stalled(of(trade), number, *fen),
            Self::Failed { trade, number, fen } => refund_failed(of(trade), number, *fen),
            Self::Asked { trade, number, fen } => request(Some(of(trade)), number, *fen),
            Self::Shared { trade } => share(of(trade), "P1", "A", 10),
            Self::ClosedAt { account } => closed_at(account),
        }
    }
}

/// The model: money of one trade = what came in - what went back, and nothing before the order is opened.
/// What went back is what the figures say, whichever says more: the sum of the exact ones or the largest total.
fn cash_by_model(said: &[Said]) -> BTreeMap<usize, (i64, i64)> {
    let mut cash = BTreeMap::new();
    if !said.contains(&Said::Open) {
        return cash;
    }
    for trade in (0..TRADES.len()).filter(|trade| said.contains(&Said::Paid { trade: *trade })) {
        let mut exact = BTreeMap::new();
        let mut total = 0;
        for fact in said {
            match fact {
                Said::Back { trade: of, number, fen } if *of == trade => {
                    exact.insert(number.clone(), *fen);
                }
                Said::BackInAll { trade: of, fen, .. } if *of == trade => total = total.max(*fen),
                Said::Back { .. } | Said::BackInAll { .. } => {}
                Said::Open
                | Said::Close
                | Said::Paid { .. }
                | Said::Stuck { .. }
                | Said::Failed { .. }
                | Said::Asked { .. }
                | Said::Shared { .. }
                | Said::ClosedAt { .. } => {}
            }
        }
        cash.insert(trade, (TRADES[trade].2, exact.values().sum::<i64>().max(total)));
    }
    cash
}

fn cash_by_state(order: &Order) -> BTreeMap<usize, (i64, i64)> {
    let index = |no: &str| TRADES.iter().position(|trade| trade.1 == no).unwrap();
    let line = |payment: &paidonce_order::order::Payment| {
        let fact = &payment.fact;
        (index(fact.payment.channel_trade_no.as_str()), (fact.amount.amount_minor, payment.refunded_minor()))
    };
    order.payments.iter().map(line).collect()
}

fn cash_by_flows(ledger: &Ledger) -> BTreeMap<usize, (i64, i64)> {
    let mut cash: BTreeMap<usize, (i64, i64)> = BTreeMap::new();
    for row in ledger.flows() {
        let trade = TRADES.iter().position(|trade| trade.1 == row.channel_trade_no.as_str()).unwrap();
        let entry = cash.entry(trade).or_default();
        match (row.trade_type, row.direction) {
            (TradeType::Pay | TradeType::Surplus, Direction::In) => entry.0 += row.amount.amount_minor,
            (TradeType::Refund, Direction::Out) => entry.1 += row.amount.amount_minor,
            (TradeType::Share, Direction::Out) | (TradeType::ShareReturn, Direction::In) => {}
            (kind, direction) => panic!("{kind:?} never goes {direction:?}"),
        }
    }
    cash
}

/// Refunds of one trade that really happened: amounts, and whether each one failed, got stuck first, was seen by query.
type Refunds = Vec<(i64, bool, bool, bool)>;

fn refunds() -> impl Strategy<Value = Vec<Refunds>> {
    let one = (1_i64..120, prop::bool::weighted(0.2), any::<bool>(), any::<bool>());
    prop::collection::vec(prop::collection::vec(one, 0..4), TRADES.len())
}

/// Everything that channels with this history say. No two facts contradict each other.
fn everything_said(history: &[Refunds]) -> Vec<Said> {
    let mut said = vec![Said::Open, Said::Close, Said::ClosedAt { account: WX }, Said::ClosedAt { account: ALI }];
    for (trade, refunds) in history.iter().enumerate() {
        said.push(Said::Paid { trade });
        said.push(Said::Shared { trade });
        let mut total = 0;
        for (i, &(fen, failed, stuck, queried)) in refunds.iter().enumerate() {
            let number = format!("R{trade}-{i}");
            let is_alipay = TRADES[trade].0 == ALI;
            // Alipay knows no stuck refunds.
            if stuck && !is_alipay {
                said.push(Said::Stuck { trade, number: number.clone(), fen });
            }
            if failed {
                said.push(Said::Failed { trade, number, fen });
                continue;
            }
            total += fen;
            if is_alipay {
                said.push(Said::BackInAll { trade, number: number.clone(), fen: total });
            }
            if !is_alipay || queried {
                said.push(Said::Back { trade, number, fen });
            }
        }
    }
    said
}

fn requests(history: &[Refunds]) -> Vec<Said> {
    let mut asked = Vec::new();
    for (trade, refunds) in history.iter().enumerate() {
        for (i, &(fen, ..)) in refunds.iter().enumerate() {
            asked.push(Said::Asked { trade, number: format!("R{trade}-{i}"), fen });
        }
    }
    asked
}

/// At least so much of what was said, in a random order, some of it twice.
fn shuffled(said: Vec<Said>, least: usize) -> impl Strategy<Value = Vec<Said>> {
    let count = said.len();
    let twice = subsequence(said.clone(), 0..=count.min(6));
    (subsequence(said, least..=count), twice)
        .prop_map(|(once, twice)| once.iter().chain(twice.iter().filter(|fact| once.contains(fact))).cloned().collect())
        .prop_flat_map(|all: Vec<Said>| Just(all).prop_shuffle())
}

/// What a channel answers to requests for refunds that it had made before it was asked, and had told of.
fn answers(said: &[Said]) -> Vec<Said> {
    let had_told = |before: &[Said], of: usize, wanted: &str| {
        before
            .iter()
            .any(|fact| matches!(fact, Said::BackInAll { trade, number, .. } if *trade == of && number == wanted))
    };
    let answer = |(index, fact): (usize, &Said)| match fact {
        Said::Asked { trade, number, fen } if had_told(said.get(..index)?, *trade, number) => {
            Some(Said::Back { trade: *trade, number: number.clone(), fen: *fen })
        }
        Said::Asked { .. }
        | Said::Open
        | Said::Close
        | Said::Paid { .. }
        | Said::Back { .. }
        | Said::BackInAll { .. }
        | Said::Stuck { .. }
        | Said::Failed { .. }
        | Said::Shared { .. }
        | Said::ClosedAt { .. } => None,
    };
    said.iter().enumerate().filter_map(answer).collect()
}

fn some_facts() -> impl Strategy<Value = Vec<Said>> {
    refunds().prop_flat_map(|history| shuffled(everything_said(&history), 0))
}

/// All facts, and requests of ours somewhere between them; with what should be back in the end.
fn all_facts_and_requests() -> impl Strategy<Value = (Vec<Said>, BTreeMap<usize, (i64, i64)>)> {
    refunds().prop_flat_map(|history| {
        let facts = everything_said(&history);
        let expected = cash_by_model(&facts);
        let asked = requests(&history);
        let count = asked.len();
        (Just(facts), subsequence(asked, 0..=count), Just(expected)).prop_flat_map(|(facts, asked, expected)| {
            let all: Vec<Said> = facts.into_iter().chain(asked).collect();
            let least = all.len();
            (shuffled(all, least), Just(expected))
        })
    })
}

/// A share number belongs to one payment.
fn share_no((at, trade_no): (&str, &str)) -> String {
    format!("P-{}-{trade_no}", &at[at.len() - 4..])
}

/// Anything at all, contradictions and nonsense included.
fn chaos() -> impl Strategy<Value = Vec<OrderCommand>> {
    let trade = || {
        prop::sample::select(vec![(WX, "T1"), (ALI, "2025010822001"), (WX, "T2"), (WX2, "T4"), (ALI, "2025010822002")])
    };
    // Only Alipay states totals.
    let trade_with_totals = || prop::sample::select(vec![(ALI, "2025010822001"), (ALI, "2025010822002")]);
    // One spelling of the alias: a figure beyond the payment is flagged once for each message, and two spellings are two.
    let number = || prop::sample::select(vec!["R1", "R2", "R3", "2025010822001"]);
    // A channel that has failed a refund for good does not name it in a total, and the other way round: an older total
    // leaves no trace, so that contradiction could not be told from a repeat.
    let failing = || prop::sample::select(vec!["F1", "R3"]);
    let totalled = || prop::sample::select(vec!["R1", "R2", "2025010822001"]);
    let fen = || prop::sample::select(vec![0_i64, 1, 50, 100, 5000, 8888, 9000, i64::MAX]);
    let one = prop_oneof![
        2 => Just(open()),
        1 => Just(close()),
        4 => trade().prop_map(|of| pay(of.0, of.1, 8888)),
        2 => (trade(), fen()).prop_map(|(of, fen)| pay(of.0, of.1, fen)),
        4 => (trade(), number(), fen()).prop_map(|(of, no, fen)| refunded(of, no, fen)),
        4 => (trade_with_totals(), totalled(), fen()).prop_map(|(of, no, fen)| refunded_in_all(of, no, fen)),
        2 => (trade(), failing(), fen()).prop_map(|(of, no, fen)| refund_failed(of, no, fen)),
        2 => (trade(), failing(), fen()).prop_map(|(of, no, fen)| refund_stalled(of, no, fen)),
        3 => (trade(), number(), fen()).prop_map(|(of, no, fen)| request(Some(of), no, fen)),
        2 => (trade(), fen()).prop_map(|(of, fen)| share(of, &share_no(of), "A", fen)),
        1 => (trade(), fen()).prop_map(|(of, fen)| share_back(of, &share_no(of), fen)),
        1 => prop::sample::select(vec![WX, ALI, WX2]).prop_map(closed_at),
        1 => Just(flag("odd")),
        1 => trade().prop_map(|of| resolve(&format!("WXPAY:2025010812345678:SURPLUS:{}", of.1))),
    ];
    prop::collection::vec(one, 0..24)
}

/// [`chaos`], with operators who accept what settles nothing.
fn chaos_with_operators() -> impl Strategy<Value = Vec<OrderCommand>> {
    let accepted = prop::sample::select(vec![(WX, "T1"), (WX, "T2"), (ALI, "2025010822001")]).prop_map(accept);
    (chaos(), prop::collection::vec(accepted, 0..3))
        .prop_flat_map(|(told, accepted)| Just(told.into_iter().chain(accepted).collect::<Vec<_>>()).prop_shuffle())
}

fn tell_all(commands: impl IntoIterator<Item = OrderCommand>) -> Ledger {
    let mut ledger = Ledger::default();
    for command in commands {
        // A rejection writes nothing: that is part of what is tested.
        let _ = ledger.tell(command);
    }
    ledger
}

fn assert_sound(ledger: &Ledger) {
    let mut folded = Order::default();
    for event in &ledger.events {
        folded.apply(event);
    }
    assert_eq!(folded, ledger.order, "state is a function of the events");
    for payment in &ledger.order.payments {
        let paid = payment.fact.amount.amount_minor;
        assert!((0..=paid).contains(&payment.refunded_minor()), "more went back than came in: {payment:?}");
    }
    assert_eq!(
        cash_by_state(&ledger.order).values().map(|(_, back)| back).sum::<i64>(),
        ledger.order.sums().refunded_minor
    );
    let keys = ledger.keys();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key twice: {keys:?}");
    assert!(keys.iter().all(|key| key.len() <= IDEM_KEY_BYTES_MAX));
    let mut items = BTreeSet::new();
    for change in ledger.changes.iter().flat_map(|changes| &changes.items) {
        match change {
            ItemChange::Opened { item_no, .. } => assert!(items.insert(item_no.clone()), "{item_no} opened twice"),
            ItemChange::Closed { item_no, .. } => assert!(items.contains(item_no), "{item_no} closed unopened"),
        }
    }
    assert!(ledger.changes.iter().all(|changes| changes.flows.len() <= 1));
}

proptest! {
    // 256 cases each; PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cash_is_the_same_under_any_permutation_and_loss_of_facts(said in some_facts()) {
        let ledger = tell_all(said.iter().map(Said::command));
        let expected = cash_by_model(&said);
        prop_assert_eq!(&cash_by_state(&ledger.order), &expected);
        prop_assert_eq!(&cash_by_flows(&ledger), &expected);
        assert_sound(&ledger);
    }

    #[test]
    fn requests_of_ours_change_nothing_in_what_went_back((said, expected) in all_facts_and_requests()) {
        let ledger = tell_all(said.iter().chain(&answers(&said)).map(Said::command));
        prop_assert_eq!(&cash_by_state(&ledger.order), &expected);
        prop_assert_eq!(&cash_by_flows(&ledger), &expected);
        assert_sound(&ledger);
    }

    #[test]
    fn paid_and_surplus_less_refunded_is_the_cash(said in some_facts()) {
        let ledger = tell_all(said.iter().map(Said::command));
        let sums = ledger.order.sums();
        let cash: i64 = cash_by_flows(&ledger).values().map(|(paid, back)| paid - back).sum();
        prop_assert_eq!(sums.paid_minor + sums.surplus_minor - sums.refunded_minor, cash);
    }

    #[test]
    fn replaying_any_prefix_twice_changes_nothing(told in chaos(), prefix in 0_usize..24) {
        let mut ledger = Ledger::default();
        let accepted: Vec<_> = told.into_iter().filter(|command| ledger.tell(command.clone()).is_ok()).collect();
        let before = ledger.clone();
        for command in accepted.into_iter().take(prefix) {
            if let Ok(events) = ledger.tell(command.clone()) {
                prop_assert!(events.is_empty(), "{:?} made {:?}", command, events);
            }
        }
        prop_assert_eq!(before.order, ledger.order);
    }

    #[test]
    fn a_command_told_twice_acts_once(told in chaos_with_operators()) {
        let mut ledger = Ledger::default();
        for command in told {
            let _ = ledger.tell(command.clone());
            if let Ok(events) = ledger.tell(command.clone()) {
                prop_assert!(events.is_empty(), "{:?} again made {:?}", command, events);
            }
        }
    }

    #[test]
    fn no_sequence_of_commands_breaks_the_books(told in chaos_with_operators()) {
        let ledger = tell_all(told);
        let mut state = Order::default();
        let mut booked: BTreeMap<String, i64> = BTreeMap::new();
        for (event, changes) in ledger.events.iter().zip(&ledger.changes) {
            state.apply(event);
            for row in &changes.flows {
                *booked.entry(row.channel_trade_no.to_string()).or_default() += match row.trade_type {
                    TradeType::Refund => row.amount.amount_minor,
                    TradeType::Pay | TradeType::Surplus | TradeType::Share | TradeType::ShareReturn => 0,
                };
            }
            for payment in &state.payments {
                let no = payment.fact.payment.channel_trade_no.as_str();
                prop_assert_eq!(booked.get(no).copied().unwrap_or(0), payment.refunded_minor(), "after {:?}", event);
                prop_assert!(payment.refunded_minor() <= payment.fact.amount.amount_minor);
            }
        }
        prop_assert_eq!(&state, &ledger.order);
        let keys = ledger.keys();
        prop_assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key twice: {:?}", keys);
    }

    #[test]
    fn every_event_and_every_state_survives_json(told in chaos_with_operators()) {
        let ledger = tell_all(told);
        for event in &ledger.events {
            let stored = LedgerEvent::Order(event.clone());
            let payload = stored.to_payload_json().unwrap();
            let read = LedgerEvent::from_stored("Order", stored.event_type(), stored.event_version(), &payload).unwrap();
            prop_assert_eq!(&read, &stored);
            let stock: OrderEvent = serde_json::from_value(serde_json::from_str(&payload).unwrap()).unwrap();
            prop_assert_eq!(&LedgerEvent::Order(stock), &stored, "a stock reader goes through a JSON value");
        }
        let json = serde_json::to_string(&ledger.order).unwrap();
        prop_assert_eq!(serde_json::from_str::<Order>(&json).unwrap(), ledger.order);
    }
}
