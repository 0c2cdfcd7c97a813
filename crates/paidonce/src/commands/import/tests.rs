//! Import files: what is read, what is refused, with its line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use paidonce_channel::OurAccounts;
use paidonce_order::ids::OrderNo;
use paidonce_order::order::Status;
use paidonce_store::Migrations;
use paidonce_store::store::{Backfill, OnlyOpen, Store, Subscriber};

use super::book::Tally;
use super::file::{ImportFile, read};
use super::{Format, ImportArgs, import, operator};
use crate::config::{Config, DatabaseConfig, Environment};
use crate::exit::{self, Exit};
use crate::ledger::{self, OpenPlan};

/// The accounts of the example file's shape, with a test key.
fn ours() -> OurAccounts {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("key.pem"), include_str!("../../config/test_public_key.pem")).unwrap();
    let text = "[[alipay]]\nseller_id = \"2088000000000001\"\n[[alipay.apps]]\napp_id = \"2021000000000001\"\nalipay_public_key_file = \"key.pem\"\n";
    let config = Config::parse(Some(&dir.path().join("paidonce.toml")), text, &Environment::default()).unwrap();
    config.accounts.ours
}

fn problems(file: &ImportFile) -> Vec<(usize, &str)> {
    file.problems.iter().map(|problem| (problem.line, problem.text.as_str())).collect()
}

#[test]
fn csv_and_json_lines_say_the_same() {
    let csv = "order_no,amount,account,channel_trade_no,paid_at,refund_no,refund_amount,refunded_at\n\
               A-1,88.88,alipay:2088000000000001,2025T1,2025-01-08T12:00:00+08:00,,,\n\
               A-2,10.00,alipay:2088000000000001,2025T2,2025-01-08T12:00:00+08:00,R-1,3.00,2025-01-09T12:00:00+08:00\n\
               A-2,10.00,alipay:2088000000000001,2025T2,2025-01-08T12:00:00+08:00,R-2,7.00,2025-01-10T12:00:00+08:00\n";
    let json = r#"{"order_no":"A-1","amount_minor":8888,"account":"alipay:2088000000000001","channel_trade_no":"2025T1","paid_at":"2025-01-08T04:00:00Z"}
{"order_no":"A-2","amount":"10","account":"alipay:2088000000000001","channel_trade_no":"2025T2","paid_at":"2025-01-08T04:00:00Z","refund_no":"R-1","refund_amount_minor":300,"refunded_at":"2025-01-09T04:00:00Z"}
{"order_no":"A-2","amount":"10","account":"alipay:2088000000000001","channel_trade_no":"2025T2","paid_at":"2025-01-08T04:00:00Z","refund_no":"R-2","refund_amount":"7","refunded_at":"2025-01-10T04:00:00Z"}
"#;
    let (csv, json) = (read(csv, Format::Csv, &ours()), read(json, Format::Jsonl, &ours()));
    assert_eq!((problems(&csv), problems(&json)), (vec![], vec![]));
    let plain = |file: &ImportFile| -> Vec<String> {
        let refunds = |order: &super::file::PaidOrder| {
            order
                .refunds
                .iter()
                .map(|refund| format!("{} {} {}", refund.refund_no, refund.amount, refund.refunded_at))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let order = |order: &super::file::PaidOrder| {
            format!("{} {} {} {}", order.order_no, order.amount, order.paid_at, refunds(order))
        };
        file.orders.iter().map(order).collect()
    };
    assert_eq!(plain(&csv), plain(&json));
    assert_eq!(csv.orders[1].refunds.len(), 2);
}

#[test]
fn every_problem_is_told_with_its_line() {
    let text = "order_no,amount,account,channel_trade_no,paid_at,refund_no,refund_amount,refunded_at\n\
                A 1,0.001,wxpay:1900000001,2025T1,yesterday,,,\n\
                A-2,10.00,alipay:2088000000000001,2025T2,2025-01-08T12:00:00Z,R-1,11.00,2025-01-09T12:00:00Z\n\
                A-3,1.00,alipay:2088000000000001,2025T3,2025-01-08T12:00:00Z\n\
                A-4,1.00,alipay:2088000000000001,2025T4,2025-01-08T12:00:00Z,,,\n\
                A-4,2.00,alipay:2088000000000001,2025T4,2025-01-08T12:00:00Z,,,\n\
                A-4,1.00,alipay:2088000000000001,2025T4,2025-01-08T12:00:00Z,,,\n";
    let file = read(text, Format::Csv, &ours());
    let found = problems(&file);
    let wanted = [
        (2, "order_no"),
        (2, "amount: "),
        (2, "account wxpay:1900000001 is not in the configuration"),
        (2, "paid_at: "),
        (3, "refund of 11.00 CNY exceeds"),
        (4, "5 values for the 8 columns"),
        (6, "order A-4 stands with other values in line 5"),
        (7, "order A-4 stands in line 5 already"),
    ];
    for (line, text) in wanted {
        assert!(found.iter().any(|(at, said)| *at == line && said.contains(text)), "{line} {text:?}: {found:#?}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn an_unknown_column_and_an_empty_file_are_problems() {
    let file = read("order_no,total\nA-1,1\n", Format::Csv, &ours());
    assert!(problems(&file)[0].1.contains("\"total\" is not a known field"), "{:?}", problems(&file));
    assert_eq!(problems(&read("", Format::Jsonl, &ours())), [(1, "the file has no orders")]);
}

/// A scratch ledger and the arguments of an import into it.
struct Bench {
    store: Arc<dyn Store>,
    args: ImportArgs,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse(Some(&folder.path().join("paidonce.toml")), "", &Environment::default()).unwrap();
        let database = DatabaseConfig { data_dir: folder.path().join("data"), ..config.database };
        let store = ledger::open(&database, &OpenPlan::durable(Migrations::Apply)).await.unwrap();
        let args = ImportArgs {
            file: "paid.csv".into(),
            operator: "lin".to_owned(),
            reason: "go-live".to_owned(),
            format: None,
            dry_run: false,
            tell_subscribers: false,
            json: false,
        };
        Self { store, args, _folder: folder }
    }

    async fn import(&self, text: &str) -> anyhow::Result<Tally> {
        let file = read(text, Format::Csv, &ours());
        assert_eq!(problems(&file), vec![]);
        import(&self.args, operator(&self.args)?, file.orders, &self.store).await
    }
}

const PAID: &str = "order_no,amount,account,channel_trade_no,paid_at,refund_no,refund_amount,refunded_at\n\
    A-1,88.88,alipay:2088000000000001,2025T1,2025-01-08T12:00:00+08:00,,,\n\
    A-2,10.00,alipay:2088000000000001,2025T2,2025-01-08T12:00:00+08:00,R-1,3.00,2025-01-09T12:00:00+08:00\n\
    A-2,10.00,alipay:2088000000000001,2025T2,2025-01-08T12:00:00+08:00,R-2,7.00,2025-01-10T12:00:00+08:00\n";

/// Guards P1 and P5: an import is commands of the one door, answered for by a person, and a repeat is nothing.
#[tokio::test]
async fn an_import_run_twice_books_once_under_the_operators_name_and_leaves_nothing_open() {
    let bench = Bench::start().await;
    let first = bench.import(PAID).await.unwrap();
    assert_eq!(first, Tally { imported: 2, known: 0, refunds: 2, refused: vec![] });
    let again = bench.import(PAID).await.unwrap();
    assert_eq!(again, Tally { imported: 0, known: 2, refunds: 0, refused: vec![] });

    let order_no = OrderNo::parse("A-2").unwrap();
    let row = bench.store.find_order_row(&order_no).await.unwrap().unwrap();
    assert_eq!((row.status, row.paid_minor, row.refunded_minor), (Status::Refunded, 1000, 1000));
    assert_eq!(bench.store.list_order_flows(&order_no).await.unwrap().len(), 3);
    assert!(bench.store.list_items(None, OnlyOpen::Yes, None, 10).await.unwrap().is_empty());
    for event in bench.store.list_order_events(&order_no).await.unwrap() {
        let metadata: serde_json::Value = serde_json::from_str(&event.metadata).unwrap();
        assert_eq!((&metadata["source"], &metadata["actor"]), (&"operator".into(), &"lin".into()), "{metadata}");
        assert!(metadata["evidence"].is_string(), "{metadata}");
    }
}

#[tokio::test]
async fn a_line_that_contradicts_the_ledger_is_told_with_its_line_and_the_others_are_booked() {
    let bench = Bench::start().await;
    bench.import(PAID).await.unwrap();
    let other = "order_no,amount,account,channel_trade_no,paid_at\n\
                 A-1,88.88,alipay:2088000000000001,2025T9,2025-01-08T12:00:00+08:00\n\
                 A-3,1.00,alipay:2088000000000001,2025T3,2025-01-08T12:00:00+08:00\n";
    for run in ["first", "second"] {
        let tally = bench.import(other).await.unwrap();
        assert_eq!(tally.refused.len(), 1, "{run}: {tally:?}");
        assert_eq!(tally.refused[0].line, 2, "{run}: {tally:?}");
        assert_eq!(tally.imported + tally.known, 1, "{run}: {tally:?}");
    }
}

#[tokio::test]
async fn subscribers_are_not_told_of_old_payments_unless_a_person_says_so() {
    let mut bench = Bench::start().await;
    let subscriber = Subscriber {
        name: "warehouse".to_owned(),
        events: vec!["*".to_owned()],
        url: "http://127.0.0.1:9/hook".to_owned(),
        secret_ref: "warehouse".to_owned(),
        paused: false,
    };
    bench.store.put_subscriber(&subscriber, Backfill::No).await.unwrap();
    let refused = bench.import(PAID).await.unwrap_err();
    assert_eq!(exit::of_error(&refused), Exit::Usage, "{refused:#}");
    assert!(bench.store.find_order_row(&OrderNo::parse("A-1").unwrap()).await.unwrap().is_none());
    bench.args.tell_subscribers = true;
    assert_eq!(bench.import(PAID).await.unwrap().imported, 2);
}
