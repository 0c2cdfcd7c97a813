//! What names no order is kept once, until a person resolves it. Guards P6.

use super::support::*;
use paidonce_order::command::{StrayCommand, StrayFact};
use paidonce_order::project::{Aggregate, project};
use paidonce_order::stray::{decide_stray, stray_id};
use paidonce_order::{LedgerEvent, Stray};

fn fact() -> StrayFact {
    StrayFact {
        account: account(WX),
        code: "unknown_type".to_owned(),
        detail: "event type COUPON.USE".to_owned(),
        channel_event_type: Some("COUPON.USE".to_owned()),
        occurred_at: at(0),
        content: digest("coupon"),
    }
}

fn tell(stray: &mut Stray, command: StrayCommand) -> usize {
    let events = decide_stray(stray, command).unwrap();
    for event in &events {
        stray.apply(event);
    }
    events.len()
}

#[test]
fn a_stray_is_kept_once_and_resolved_once() {
    let mut stray = Stray::default();
    assert_eq!(tell(&mut stray, StrayCommand::RecordStray(fact())), 1);
    assert_eq!(tell(&mut stray, StrayCommand::RecordStray(fact())), 0);
    assert!(stray.open);
    assert_eq!(tell(&mut stray, StrayCommand::ResolveStray { by: operator() }), 1);
    assert_eq!(tell(&mut stray, StrayCommand::ResolveStray { by: operator() }), 0);
    assert_eq!(tell(&mut stray, StrayCommand::RecordStray(fact())), 0, "a redelivery does not open it again");
    assert!(!stray.open);
}

#[test]
fn what_is_not_there_can_not_be_resolved() {
    assert!(decide_stray(&Stray::default(), StrayCommand::ResolveStray { by: operator() }).is_err());
}

#[test]
fn the_id_names_channel_account_and_content() {
    let id = stray_id(&account(WX), &digest("coupon"));
    assert_eq!(id, format!("wxpay:1900000001:{}", digest("coupon")));
}

#[test]
fn a_stray_is_an_item_and_no_order() {
    let id = stray_id(&account(WX), &digest("coupon"));
    let before = Aggregate::empty("Stray").unwrap();
    let event =
        LedgerEvent::Stray(decide_stray(&Stray::default(), StrayCommand::RecordStray(fact())).unwrap().remove(0));
    let mut after = before.clone();
    after.apply(&event);
    let changes = project(&id, &event, &before, &after);
    assert_eq!((changes.order, changes.flows, changes.idem_key), (None, vec![], None));
    assert_eq!(changes.items.len(), 1);
}
