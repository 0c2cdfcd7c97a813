//! The books: every movement of money once, balancing to zero, in every format.

use std::collections::BTreeMap;

use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::database::Engine;
use serde_json::{Value, json};

use super::audit::{audit, text};
use super::audit_replay::history;
use super::{WXPAY, on_both};

fn export(app: &TestApp, format: &str, more: &[&str]) -> String {
    let done = audit(app, &[&["export", "--format", format], more].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    String::from_utf8(done.stdout).expect("text")
}

/// Balances by account, from debits and credits of JSON lines.
fn balances(lines: &str) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for line in lines.lines() {
        let entry: Value = serde_json::from_str(line).expect("JSON");
        let minor = entry["amount_minor"].as_i64().expect("an amount");
        *sums.entry(entry["debit"].as_str().expect("text").to_owned()).or_insert(0) += minor;
        *sums.entry(entry["credit"].as_str().expect("text").to_owned()).or_insert(0) -= minor;
    }
    sums
}

on_both! {
    /// P4: what the books say was received, sold, refunded and owed is what the flows of the database say.
    async fn the_books_agree_with_the_flows(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        // A surplus that is let settle its order, and a refund of another.
        app.open("MISPAID", 500, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("MISPAID", "42000321", 499)).await.status, 204);
        let items = app.get("/v1/items?kind=surplus").await.json();
        let items = items["items"].as_array().expect("items").iter();
        let of = items.filter(|item| item["order_no"] == "MISPAID");
        let item_no = of.map(|item| item["item_no"].as_str().expect("text").to_owned()).next().expect("a surplus");
        let path = format!("/v1/items/{}/accept", item_no.replace(':', "%3A"));
        let accepted = app.post(&path, &json!({ "operator": "finance", "reason": "the customer agreed" })).await;
        assert_eq!(accepted.status, 200, "{}", accepted.text());
        let books = balances(&export(&app, "jsonl", &[]));
        let sum = |condition: &str| {
            let sql = format!("SELECT CAST(coalesce(sum(amount_minor), 0) AS bigint) FROM t_order_flow WHERE {condition}");
            app.database.count(&sql)
        };
        let received: i64 = books.iter().filter(|(name, _)| name.starts_with("Assets:")).map(|(_, sum)| sum).sum();
        assert_eq!(received, sum("direction = 'IN'") - sum("direction = 'OUT'"), "{books:?}");
        assert_eq!(-books["Income:Sales"], sum("trade_type = 'PAY'") + 499, "{books:?}");
        assert_eq!(-books["Liabilities:Surplus"], sum("trade_type = 'SURPLUS'") - 499, "{books:?}");
        assert_eq!(books.values().sum::<i64>(), 0);
        app.finish().await;
    }

    /// Every format has every entry, and no file is overwritten.
    async fn every_format_has_every_entry(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let flows = app.database.count("SELECT count(*) FROM t_order_flow");
        let entries = usize::try_from(flows).expect("a small number");
        assert_eq!(export(&app, "jsonl", &[]).lines().count(), entries);
        let csv = export(&app, "csv", &[]);
        assert_eq!(csv.matches("\r\n").count(), entries + 1, "{csv}");
        assert!(csv.starts_with("date,recorded_at,order_no,event_type,channel,account"), "{csv}");
        assert_eq!(export(&app, "hledger", &[]).matches(" * (AUDIT-").count(), entries);
        let beancount = export(&app, "beancount", &[]);
        assert_eq!(beancount.matches(" * \"AUDIT-").count(), entries, "{beancount}");
        assert!(beancount.contains("1970-01-01 open Income:Sales"), "{beancount}");
        let book = app.dir().join("books.xlsx").display().to_string();
        export(&app, "xlsx", &["--out", &book]);
        assert!(std::fs::read(&book).expect("the workbook").starts_with(b"PK"), "a workbook is a zip archive");
        let again = audit(&app, &["export", "--format", "xlsx", "--out", &book]);
        assert_eq!(again.status.code(), Some(2), "{}", text(&again));
        assert_eq!(export(&app, "jsonl", &["--to", "2020-01-31"]), "");
        let odd = audit(&app, &["export", "--format", "csv", "--from", "2026-02-01", "--to", "2026-01-01"]);
        assert_eq!(odd.status.code(), Some(2), "{}", text(&odd));
        app.finish().await;
    }

    /// What a spreadsheet would take for a formula stays a text.
    async fn a_cell_is_never_a_formula(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("-1|cmd", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("-1|cmd", "42000777", 100)).await.status, 204);
        app.open("@SUM", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("@SUM", "42000778", 100)).await.status, 204);
        let refund = json!({ "refund_no": "@R", "amount_minor": 10 });
        let _ = app.send(&shop_request("/v1/orders/@SUM/refunds", &refund)).await;
        let csv = export(&app, "csv", &[]);
        assert!(csv.contains(",'@SUM,") && !csv.contains(",@SUM,"), "{csv}");
        assert!(csv.contains(",'-1|cmd,") && !csv.contains(",-1|cmd,"), "{csv}");
        app.abandon();
    }
}
