//! Whose message it is. A valid signature only proves that WeChat Pay sent it, not that it is about us.

use super::account::WxpayAccount;
use super::plaintext::{filled, required};
use crate::json::Object;
use crate::reading::{Stop, not_ours};

/// The merchant of a payment or refund must be this account: `mchid`, or `sp_mchid` with a `sub_mchid` of ours. A number
/// that is missing never counts as equal.
pub(super) fn check_merchant(plaintext: &Object<'_>, account: &WxpayAccount) -> Result<(), Stop> {
    let own = account.account.account.as_str();
    let mchid = filled(plaintext, "mchid");
    if let Some(found) = mchid.filter(|found| *found != own) {
        return Err(not_ours("mchid", found));
    }
    match filled(plaintext, "sp_mchid") {
        Some(sp_mchid) => check_partner(sp_mchid, plaintext, account),
        None if mchid.is_some() => Ok(()),
        None => Ok(required(plaintext, "mchid").map(drop)?),
    }
}

/// The same for an answer that need not name the merchant (a refund's): what it names must be ours.
pub(super) fn check_merchant_if_named(answer: &Object<'_>, account: &WxpayAccount) -> Result<(), Stop> {
    if filled(answer, "mchid").is_some() || filled(answer, "sp_mchid").is_some() {
        return check_merchant(answer, account);
    }
    match filled(answer, "sub_mchid").filter(|sub_mchid| !account.sub_mchids.has(sub_mchid)) {
        Some(sub_mchid) => Err(not_ours("sub_mchid", sub_mchid)),
        None => Ok(()),
    }
}

fn check_partner(sp_mchid: &str, plaintext: &Object<'_>, account: &WxpayAccount) -> Result<(), Stop> {
    if sp_mchid != account.account.account.as_str() {
        return Err(not_ours("sp_mchid", sp_mchid));
    }
    let sub_mchid = required(plaintext, "sub_mchid")?;
    if account.sub_mchids.has(sub_mchid) { Ok(()) } else { Err(not_ours("sub_mchid", sub_mchid)) }
}

/// The app of a payment: `appid`, or `sp_appid` in a service provider's message.
pub(super) fn check_app(plaintext: &Object<'_>, account: &WxpayAccount) -> Result<(), Stop> {
    let field = if filled(plaintext, "sp_mchid").is_some() { "sp_appid" } else { "appid" };
    check_app_field(plaintext, field, account)
}

/// The app in a named field.
pub(super) fn check_app_field(plaintext: &Object<'_>, field: &'static str, account: &WxpayAccount) -> Result<(), Stop> {
    let appid = required(plaintext, field)?;
    if account.appids.contains(appid) { Ok(()) } else { Err(not_ours(field, appid)) }
}
