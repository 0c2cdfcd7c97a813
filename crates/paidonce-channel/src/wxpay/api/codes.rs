//! WeChat Pay's error codes (facts A3, A4, A6 and gotcha 34). Official lists and spellings differ between versions of the API,
//! so all known ones are here, and a code without a row is never taken for a refusal.

use crate::answer::{Answering, Code, Meaning, doubt, object, resolve, text_or_digits};
use crate::api::{ApiAnswer, ApiCall};
use crate::json::parse_object;
use crate::reading::cut;

/// One row for each spelling.
const CODES: &[(&str, Meaning)] = &[
    ("ORDER_NOT_EXIST", Meaning::NotFound),
    ("ORDER_NOT_EXISTS", Meaning::NotFound),
    ("ORDERNOTEXIST", Meaning::NotFound),
    ("268512771", Meaning::NotFound),
    ("RESOURCE_NOT_EXISTS", Meaning::NotFound),
    ("RESOURCE_NOT_EXIST", Meaning::NotFound),
    ("REFUND_NOT_EXISTS", Meaning::NotFound),
    ("REFUNDNOTEXIST", Meaning::NotFound),
    ("ORDER_PAID", Meaning::NotUnpaid),
    ("ORDERPAID", Meaning::NotUnpaid),
    ("268449538", Meaning::NotUnpaid),
    ("268498689", Meaning::NotUnpaid),
    // Can't be closed, only reversed: somebody is paying with a payment code.
    ("268449641", Meaning::NotUnpaid),
    ("ORDER_CLOSED", Meaning::AlreadyClosed),
    ("ORDERCLOSED", Meaning::AlreadyClosed),
    ("268447914", Meaning::AlreadyClosed),
    ("NOT_ENOUGH", Meaning::BalanceShort),
    ("NOTENOUGH", Meaning::BalanceShort),
    ("FREQUENCY_LIMITED", Meaning::Busy),
    ("FREQUENCY_LIMIT", Meaning::Busy),
    ("FREQUENCY_LIMIT_EXCEED", Meaning::Busy),
    ("RATELIMIT_EXCEEDED", Meaning::Busy),
    ("RATELIMIT_EXCEED", Meaning::Busy),
    ("268447840", Meaning::Busy),
    ("PARAM_ERROR", Meaning::Mistake),
    ("INVALID_REQUEST", Meaning::Mistake),
    ("MCH_NOT_EXISTS", Meaning::Mistake),
    ("SIGN_ERROR", Meaning::Mistake),
    ("268443699", Meaning::Mistake),
    ("NO_AUTH", Meaning::Mistake),
    ("NOAUTH", Meaning::Mistake),
    ("RULE_LIMIT", Meaning::Mistake),
    ("APPID_MCHID_NOT_MATCH", Meaning::Mistake),
    ("268447843", Meaning::Mistake),
    ("268498688", Meaning::Mistake),
    // No document calls it final: a person looks, the same number may be sent again.
    ("USER_ACCOUNT_ABNORMAL", Meaning::Mistake),
    ("SYSTEM_ERROR", Meaning::Trouble),
    ("SYSTEMERROR", Meaning::Trouble),
    ("BANK_ERROR", Meaning::Trouble),
    ("BANKERROR", Meaning::Trouble),
];

/// Our own limit was passed, says HTTP itself.
const TOO_MANY_REQUESTS: u16 = 429;

fn meaning(code: &str, status: u16) -> Option<Meaning> {
    let row = CODES.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning);
    row.or_else(|| (status == TOO_MANY_REQUESTS).then_some(Meaning::Busy))
}

/// A verified answer with a status of 4xx: `{code, message, detail}`.
pub(super) fn read(call: &ApiCall, answering: Answering<'_>) -> ApiAnswer {
    let (body, status) = (answering.response.body, answering.response.status);
    let error = match object(body) {
        Ok(error) => error,
        Err(doubt) => return ApiAnswer::Unknown(doubt),
    };
    let Some(word) = text_or_digits(&error, "code") else {
        return ApiAnswer::Unknown(doubt("unreadable", format!("status {status} without a code")));
    };
    let detail = text_or_digits(&error, "message").unwrap_or_default();
    resolve(meaning(word, status), &Code { word, detail }, &call.ask, answering)
}

/// The code of an error for people, whether it is verified or not; empty when there is none.
pub(super) fn shown(body: &[u8]) -> String {
    parse_object(body).ok().and_then(|error| text_or_digits(&error, "code").map(cut)).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_row() {
        for (index, (code, _)) in CODES.iter().enumerate() {
            assert!(CODES.iter().skip(index + 1).all(|(other, _)| other != code), "{code}");
        }
    }

    #[test]
    fn a_code_without_a_row_has_no_meaning_but_its_status_may() {
        assert_eq!(meaning("SOMETHING_NEW", 403), None);
        assert_eq!(meaning("SOMETHING_NEW", 429), Some(Meaning::Busy));
        assert_eq!(meaning("ORDER_NOT_EXIST", 429), Some(Meaning::NotFound));
    }
}
