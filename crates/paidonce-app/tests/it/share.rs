//! A profit share is followed by asking, since the sharer is told nothing.

use paidonce_app::Caller;
use paidonce_app::app::Novelty;
use paidonce_app::ports::EffectStep;
use paidonce_app::profit_share::FollowProfitShare;
use serde_json::{Value, json};

use crate::harness::*;
use crate::platform::{Says, ok, wx_error};

async fn follow(ledger: &Ledger) -> Novelty {
    let request = FollowProfitShare { out_order_no: "P1".to_owned(), payment: None };
    ledger.app.follow_profit_share(&order_no(), request, &Caller::default()).await.unwrap().novelty
}

fn share(state: &str, results: [&str; 2]) -> Value {
    let receiver = |account: &str, result: &str, amount: i64| {
        let mut receiver = json!({
            "type": "MERCHANT_ID", "account": account, "amount": amount, "description": "share", "result": result,
            "detail_id": format!("36011111111111111111{account}"), "create_time": "2025-01-08T13:00:00+08:00",
            "finish_time": "2025-01-08T13:01:00+08:00"
        });
        if result == "CLOSED" {
            receiver["fail_reason"] = json!("NO_RELATION");
        }
        receiver
    };
    json!({
        "transaction_id": TRADE, "out_order_no": "P1", "order_id": "3008450740201411110007820472", "state": state,
        "receivers": [receiver("1900000109", results[0], 100), receiver("1900000110", results[1], 200)]
    })
}

#[tokio::test]
async fn gotchas_28_and_30_a_share_is_followed_by_query_and_finished_is_looked_at_receiver_by_receiver() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 8888).await;
    assert_eq!(follow(&ledger).await, Novelty::New);
    assert_eq!(follow(&ledger).await, Novelty::Repeat);
    ledger.platform.will_say([
        wx_error(404, "RESOURCE_NOT_EXISTS"),
        Says::Timeout,
        ok(share("PROCESSING", ["SUCCESS", "PENDING"])),
        ok(share("FINISHED", ["SUCCESS", "CLOSED"])),
    ]);
    for _ in 0..3 {
        assert!(matches!(ledger.run("query_share").await, EffectStep::Again { .. }));
    }
    assert_eq!(ledger.run("query_share").await, EffectStep::Done);
    assert_eq!(ledger.count_of("ProfitShareConfirmed").await, 1, "one receiver got its money");
    let items = ledger.items().await;
    assert_eq!(items.len(), 1, "the other one did not, and a person sees it: {items:?}");
    assert_eq!(ledger.order().await.shares.len(), 1);
    assert_eq!(ledger.platform.asked().len(), 4);
}

/// Unfreezing the rest needs a new out_order_no at the platform (it refuses the old one); here, a new number is a new share
/// to follow, and the old one goes on as it was.
#[tokio::test]
async fn gotcha_29_a_new_number_is_another_share() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 8888).await;
    for number in ["P1", "UNFREEZE1"] {
        let request = FollowProfitShare { out_order_no: number.to_owned(), payment: None };
        let answer = ledger.app.follow_profit_share(&order_no(), request, &Caller::default()).await.unwrap();
        assert_eq!((answer.novelty, answer.value.out_order_no.as_str()), (Novelty::New, number));
    }
    assert_eq!(ledger.count_of("ProfitShareFollowed").await, 2);
}
