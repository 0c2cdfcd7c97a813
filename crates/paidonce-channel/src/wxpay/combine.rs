//! Combine payments: one notice, one answer, several orders, each booked for the account of its own mchid (fact A1.8).

use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use super::ownership::check_app_field;
use super::payment::{COMBINE, Context, read_one, standing_of};
use super::plaintext::{filled, required};
use crate::accounts::OurAccounts;
use crate::api::{Doubt, KnownCombine, SubOrder};
use crate::json::{Json, Object, member};
use crate::reading::{Said, Stop, Unbookable, cut, not_ours};

/// Most sub-orders of a combine payment.
const SUB_ORDERS_MAX: usize = 50;

/// A combine payment: each sub-order is booked for the account of its own mchid.
///
/// `combine_mchid` must be the account of the path, since its keys opened the message. A sub-order of a merchant who is not
/// ours is kept as a stray and the others are booked: our money must not wait for a stranger's, and a refusal would only
/// make WeChat Pay send the same again until it gives up.
pub(super) fn read(plaintext: &Object<'_>, context: &Context<'_>) -> Result<Vec<Said>, Stop> {
    let said = |sub_order| read_sub_order(sub_order, context).unwrap_or_else(Said::Unbookable);
    Ok(sub_orders(plaintext, context.account)?.iter().map(said).collect())
}

fn sub_orders<'j, 'a>(plaintext: &'j Object<'a>, account: &WxpayAccount) -> Result<&'j [Json<'a>], Stop> {
    let combine_mchid = required(plaintext, "combine_mchid")?;
    if combine_mchid != account.account.account.as_str() {
        return Err(not_ours("combine_mchid", combine_mchid));
    }
    check_app_field(plaintext, "combine_appid", account)?;
    let Some(Json::Array(sub_orders)) = member(plaintext, "sub_orders") else {
        return Err(Unbookable::missing("sub_orders").into());
    };
    if sub_orders.is_empty() || sub_orders.len() > SUB_ORDERS_MAX {
        let detail = format!("sub_orders has {} members, not 1 to {SUB_ORDERS_MAX}", sub_orders.len());
        return Err(Unbookable::new("unusable_number", detail).into());
    }
    Ok(sub_orders)
}

fn read_sub_order(sub_order: &Json<'_>, context: &Context<'_>) -> Result<Said, Unbookable> {
    let (sub_order, account) = our_sub_order(sub_order, context.ours)?;
    read_one(sub_order, account, &COMBINE, context)
}

/// A sub-order with the account of ours that it is for.
fn our_sub_order<'j, 'a, 'o>(
    sub_order: &'j Json<'a>,
    ours: &'o OurAccounts,
) -> Result<(&'j Object<'a>, &'o WxpayAccount), Unbookable> {
    let sub_order = object_of(sub_order)?;
    let mchid = required(sub_order, "mchid")?;
    let foreign = |field: &str, found: &str| {
        let detail = format!("{field} {:?} of a sub-order is not one of ours", cut(found));
        Unbookable::new("foreign_sub_order", detail)
    };
    let account = ours.find_wxpay(mchid).ok_or_else(|| foreign("mchid", mchid))?;
    if let Some(sub_mchid) = filled(sub_order, "sub_mchid").filter(|sub_mchid| !account.sub_mchids.has(sub_mchid)) {
        return Err(foreign("sub_mchid", sub_mchid));
    }
    Ok((sub_order, account))
}

fn object_of<'j, 'a>(sub_order: &'j Json<'a>) -> Result<&'j Object<'a>, Unbookable> {
    let Json::Object(sub_order) = sub_order else { return Err(Unbookable::missing("sub_orders[].mchid")) };
    Ok(sub_order)
}

/// The answer to a query: how each part stands, and what is said of those that are ours. A part that is not ours is of no
/// interest before it is paid; then it is kept as a stray, as in a notice.
pub(super) fn read_standing(
    answer: &Object<'_>,
    account: &WxpayAccount,
    ours: &OurAccounts,
    now: Timestamp,
) -> Result<(KnownCombine, Vec<Said>), Doubt> {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for sub_order in sub_orders(answer, account)? {
        let object = object_of(sub_order)?;
        let trade_state = required(object, "trade_state")?;
        let state = match our_sub_order(sub_order, ours) {
            Ok((object, account)) => {
                let standing = standing_of(object, account, &COMBINE, now)?;
                said.extend(standing.said);
                Some(standing.state)
            }
            Err(foreign) => {
                said.extend(matches!(trade_state, "SUCCESS" | "REFUND").then_some(Said::Unbookable(foreign)));
                None
            }
        };
        parts.push(SubOrder {
            mchid: required(object, "mchid")?.to_owned(),
            sub_mchid: filled(object, "sub_mchid").map(str::to_owned),
            out_trade_no: required(object, "out_trade_no")?.to_owned(),
            state,
            trade_state: cut(trade_state),
        });
    }
    let combine_appid = required(answer, "combine_appid")?.to_owned();
    Ok((KnownCombine { combine_appid, sub_orders: parts }, said))
}
