//! Profit sharing and its return (fact A5): told to the receiver only, with no order number.

use paidonce_order::command::{PaymentRef, ShareFact, ShareKind};
use paidonce_order::ids::OrderNo;
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use super::ownership::check_merchant;
use super::plaintext::{Sign, filled, minor, payment_ref, required, required_minor, required_time};
use crate::accounts::OurAccounts;
use crate::answer::doubt;
use crate::api::{Doubt, ShareState};
use crate::digest::sha256;
use crate::json::{Json, Object, member};
use crate::observation::Fact;
use crate::reading::{
    Receiver, Said, ShareNumbers, Stop, Unbookable, cut, flag_fact, receiver_type, share_fact, share_no,
};

/// Most receivers of one request.
const RECEIVERS_MAX: usize = 50;

/// What a share is read with.
pub(super) struct Context<'a> {
    /// The account of the path: the one that received money, or a sharer who is told of a return.
    pub(super) account: &'a WxpayAccount,
    /// All of ours.
    pub(super) ours: &'a OurAccounts,
    /// With `summary`: hints that tell a share from its return.
    pub(super) event_type: &'a str,
    pub(super) summary: &'a str,
}

/// A share notice. It belongs to the payment of the sharing merchant, who may be another of our accounts.
pub(super) fn read(plaintext: &Object<'_>, context: &Context<'_>) -> Result<Vec<Said>, Stop> {
    let receivers = receivers(plaintext)?;
    let sharer = sharer(plaintext, &receivers, context)?;
    let kind = kind(plaintext, context);
    let said = |receiver| read_one(plaintext, receiver, sharer, kind).unwrap_or_else(Said::Unbookable);
    Ok(receivers.into_iter().map(said).collect())
}

/// Whose payment was shared: this account's, or that of another of ours when this one received. From a stranger's payment we
/// only received: there is no order of ours, and the notice is kept as a stray.
fn sharer<'c>(
    plaintext: &Object<'_>,
    receivers: &[&Object<'_>],
    context: &Context<'c>,
) -> Result<&'c WxpayAccount, Stop> {
    let account = context.account;
    let Err(stop) = check_merchant(plaintext, account) else { return Ok(account) };
    let own = account.account.account.as_str();
    let received = receivers.iter().any(|receiver| filled(receiver, "account") == Some(own));
    if !received || !matches!(stop, Stop::Refused(_)) {
        return Err(stop);
    }
    let named = filled(plaintext, "sp_mchid").or_else(|| filled(plaintext, "mchid"));
    let other = named.and_then(|mchid| context.ours.find_wxpay(mchid));
    let stranger = || Unbookable::new("share_received", "another merchant shared money with us").into();
    other.filter(|other| check_merchant(plaintext, other).is_ok()).ok_or_else(stranger)
}

/// How a share stands, as an answer of the API says it.
pub(super) struct Standing {
    pub(super) state: ShareState,
    /// PROCESSING, FINISHED.
    pub(super) word: String,
    pub(super) said: Vec<Said>,
}

/// What was asked.
pub(super) struct Asked<'a> {
    /// Where a failed share is shown.
    pub(super) order_no: &'a OrderNo,
    pub(super) payment: &'a PaymentRef,
    pub(super) account: &'a WxpayAccount,
    /// The merchant whose money is shared: mchid, or the sub-merchant.
    pub(super) sharer: &'a str,
    pub(super) now: Timestamp,
}

/// The answer to a query. FINISHED only means executed: each receiver has its own result (gotcha 28).
pub(super) fn read_standing(answer: &Object<'_>, asked: &Asked<'_>) -> Result<Standing, Doubt> {
    let word = required(answer, "state")?;
    if !matches!(word, "PROCESSING" | "FINISHED") {
        return Err(doubt("unknown_code", format!("state {:?} is unknown", cut(word))));
    }
    let (mut said, mut open) = (Vec::new(), word == "PROCESSING");
    for receiver in receivers(answer)? {
        match required(receiver, "result")? {
            "PENDING" => open = true,
            // What is unfrozen comes back to the sharer as a "receiver": no money left us.
            "SUCCESS" if filled(receiver, "account") == Some(asked.sharer) => {}
            "SUCCESS" => said.push(read_queried(answer, receiver, asked).unwrap_or_else(Said::Unbookable)),
            "CLOSED" => said.push(failed(answer, receiver, asked)?),
            other => return Err(doubt("unknown_code", format!("result {:?} is unknown", cut(other)))),
        }
    }
    let state = if open { ShareState::Processing } else { ShareState::Finished };
    Ok(Standing { state, word: word.to_owned(), said })
}

/// The same fact as the receiver's notice, so that both are booked once.
fn read_queried(answer: &Object<'_>, receiver: &Object<'_>, asked: &Asked<'_>) -> Result<Said, Unbookable> {
    let finish_time = required_time(receiver, "finish_time")?;
    let kind = ShareKind::Shared;
    Ok(Said::share(read_fact(answer, receiver, Sharing { account: asked.account, kind }, finish_time)?))
}

fn failed(answer: &Object<'_>, receiver: &Object<'_>, asked: &Asked<'_>) -> Result<Said, Unbookable> {
    let reason = filled(receiver, "fail_reason").unwrap_or_default();
    let share_no = required(answer, "out_order_no")?;
    let receiver_type = receiver_type("receivers.type", filled(receiver, "type"))?;
    // Personal data stays out: the receiver is told apart by the digest of its account.
    let hashed = sha256(required(receiver, "account")?.as_bytes()).to_string();
    let amount = minor(receiver, "amount", Sign::NotNegative)?.unwrap_or_default();
    let detail = format!("share {share_no}: {amount} fen for a {receiver_type} failed: {}", cut(reason));
    let trade_no = asked.payment.channel_trade_no.as_str();
    let distinguishing = [trade_no, share_no, receiver_type, &hashed, reason];
    let at = required_time(receiver, "finish_time").unwrap_or(asked.now);
    let flag = flag_fact(&asked.payment.account, "share_failed", detail, &distinguishing, at);
    Ok(Said::about(asked.order_no.clone(), Fact::Flag(flag)))
}

/// Officially an object; a list was seen too.
fn receivers<'j, 'a>(plaintext: &'j Object<'a>) -> Result<Vec<&'j Object<'a>>, Unbookable> {
    let found = member(plaintext, "receiver").or_else(|| member(plaintext, "receivers"));
    let listed: Vec<&Json<'_>> = match found {
        Some(Json::Array(list)) => list.iter().collect(),
        Some(single) => vec![single],
        None => return Err(Unbookable::missing("receiver")),
    };
    if listed.is_empty() || listed.len() > RECEIVERS_MAX {
        let detail = format!("receiver has {} members, not 1 to {RECEIVERS_MAX}", listed.len());
        return Err(Unbookable::new("unusable_number", detail));
    }
    let object = |one: &'j Json<'a>| match one {
        Json::Object(object) => Ok(object),
        Json::Null | Json::Bool | Json::Number(_) | Json::Text(_) | Json::Array(_) => {
            Err(Unbookable::missing("receiver.account"))
        }
    };
    listed.into_iter().map(object).collect()
}

/// The shape decides; the event type, then the summary, where the shape is the same.
fn kind(plaintext: &Object<'_>, hints: &Context<'_>) -> ShareKind {
    let returned = filled(plaintext, "out_return_no").is_some()
        || hints.event_type == "PROFITSHARING.RETURN"
        || (hints.event_type != "PROFITSHARING.SUCCESS" && hints.summary.contains("回退"));
    if returned { ShareKind::Returned } else { ShareKind::Shared }
}

fn read_one(
    plaintext: &Object<'_>,
    receiver: &Object<'_>,
    account: &WxpayAccount,
    kind: ShareKind,
) -> Result<Said, Unbookable> {
    let success_time = required_time(plaintext, "success_time")?;
    Ok(Said::share(read_fact(plaintext, receiver, Sharing { account, kind }, success_time)?))
}

/// Whose share in which direction.
struct Sharing<'a> {
    account: &'a WxpayAccount,
    kind: ShareKind,
}

fn read_fact(
    plaintext: &Object<'_>,
    receiver: &Object<'_>,
    Sharing { account, kind }: Sharing<'_>,
    moved_at: Timestamp,
) -> Result<ShareFact, Unbookable> {
    let payment = payment_ref(plaintext, &account.account)?;
    let returned_no = match kind {
        ShareKind::Shared => None,
        ShareKind::Returned => filled(plaintext, "out_return_no"),
    };
    let share_no = share_no("out_order_no", returned_no.or_else(|| filled(plaintext, "out_order_no")))?;
    let names = Receiver {
        receiver_type: receiver_type("receiver.type", filled(receiver, "type"))?,
        account: required(receiver, "account")?,
    };
    let amount = Money::fen(required_minor(receiver, "amount", Sign::Positive)?);
    let channel_share_no = filled(plaintext, "return_id").or_else(|| filled(plaintext, "order_id")).map(str::to_owned);
    let numbers = ShareNumbers { share_no, channel_share_no };
    Ok(share_fact(payment, kind, numbers, &names, (amount, moved_at)))
}
