//! Gotchas 28 and 30: who shares money hears nothing, so the ledger asks; and a finished share is not a paid receiver.

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use paidonce_tests::platform_stub::asked::Api;
use serde_json::{Value, json};

use super::{WXPAY, on_both};

on_both! {
    /// P1 and P6: a share that the merchant started is followed until every receiver has a result of its own.
    async fn a_profit_share_is_followed_to_each_receivers_result(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        app.open("SHARED", 1000, &[WXPAY]).await;
        app.platforms.world(|world| world.pay("SHARED", "42000150", 1000));
        assert_eq!(app.send(&app.wx_payment("SHARED", "42000150", 1000)).await.status, 204);
        app.platforms.world(|world| world.set_share("P-1", share("PROCESSING", ["PENDING", "PENDING", "PENDING"])));
        let follow = json!({ "out_order_no": "P-1" });
        for expected in [202, 200] {
            let answer = app.post_as_shop("/v1/orders/SHARED/profit-shares", &follow).await;
            assert_eq!(answer.status, expected, "{}", answer.text());
        }
        app.walk(10).await;
        assert_eq!(flows(&app), 0);
        // Finished, and one of them is not final yet: executed is not succeeded.
        app.platforms.world(|world| world.set_share("P-1", share("FINISHED", ["SUCCESS", "CLOSED", "PENDING"])));
        app.walk(3600).await;
        assert_eq!(flows(&app), 1, "only the receiver that got money");
        app.platforms.world(|world| world.set_share("P-1", share("FINISHED", ["SUCCESS", "CLOSED", "SUCCESS"])));
        app.walk(2 * 3600).await;
        assert_eq!(flows(&app), 2);
        let shared = "SELECT CAST(sum(amount_minor) AS bigint) FROM t_order_flow WHERE trade_type = 'SHARE'";
        assert_eq!(app.database.count(shared), 150);
        let asked = app.platforms.calls_about(Api::WechatShareQuery, "P-1").len();
        app.walk(24 * 3600).await;
        assert_eq!(app.platforms.calls_about(Api::WechatShareQuery, "P-1").len(), asked, "asked after the end");
        app.finish().await;
    }
}

fn share(state: &str, results: [&str; 3]) -> Value {
    let receivers: Vec<Value> = results
        .iter()
        .zip([("1900000771", 100), ("1900000772", 200), ("1900000773", 50)])
        .map(|(result, (account, amount))| {
            let mut receiver = json!({
                "type": "MERCHANT_ID", "account": account, "amount": amount, "result": result,
                "detail_id": format!("D{account}")
            });
            match *result {
                "SUCCESS" => receiver["finish_time"] = json!("2026-01-15T10:30:00+08:00"),
                "CLOSED" => receiver["fail_reason"] = json!("ACCOUNT_ABNORMAL"),
                _ => {}
            }
            receiver
        })
        .collect();
    json!({
        "transaction_id": "42000150", "out_order_no": "P-1", "order_id": "3000802026011500001", "state": state,
        "receivers": receivers
    })
}

fn flows(app: &TestApp) -> i64 {
    app.database.count("SELECT count(*) FROM t_order_flow WHERE trade_type = 'SHARE'")
}
