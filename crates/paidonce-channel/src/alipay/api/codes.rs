//! Alipay's codes (facts B3, B4, B6, gotchas 56, 64, 66). The official lists differ from what production returns, so a code
//! without a row is never taken for a refusal.

use crate::answer::{Answering, Code, Meaning, doubt, resolve, text_or_digits};
use crate::api::{ApiAnswer, ApiCall, Ask, RefundState, ReplyState};
use crate::json::Object;

const SUCCESS: &str = "10000";

/// Accepted, not done.
const IN_PROCESS: &str = "10003";

/// `sub_code`, upper case, without `ACQ.` (also misspelled `AQC.`), `ISV.`, `ISP.` and `AOP.`.
const SUB_CODES: &[(&str, Meaning)] = &[
    ("TRADE_NOT_EXIST", Meaning::NotFound),
    ("TRADE_STATUS_ERROR", Meaning::NotUnpaid),
    ("REASON_TRADE_STATUS_INVALID", Meaning::NotUnpaid),
    ("REASON_ILLEGAL_STATUS", Meaning::NotUnpaid),
    ("SELLER_BALANCE_NOT_ENOUGH", Meaning::BalanceShort),
    // TRADE_FINISHED means that the time for refunds is over (fact B1.3): the one refusal that is documented as final.
    ("TRADE_HAS_FINISHED", Meaning::NoMoreRefunds),
    ("APP-CALL-LIMITED", Meaning::Busy),
    ("METHOD-CALL-LIMITED", Meaning::Busy),
    ("INVALID_PARAMETER", Meaning::Mistake),
    ("REFUND_AMT_NOT_EQUAL_TOTAL", Meaning::Mistake),
    ("REASON_TRADE_REFUND_FEE_ERR", Meaning::Mistake),
    ("REFUND_FEE_ERROR", Meaning::Mistake),
    ("REASON_TRADE_BEEN_FREEZEN", Meaning::Mistake),
    ("TRADE_NOT_ALLOW_REFUND", Meaning::Mistake),
    // The same number with other parameters: what counts is the fate of the earlier request, and that is asked for.
    ("DISCORDANT_REPEAT_REQUEST", Meaning::Trouble),
    ("SYSTEM_ERROR", Meaning::Trouble),
    ("SYSTEMERROR", Meaning::Trouble),
    ("UNKNOW-ERROR", Meaning::Trouble),
    ("UNKNOWN-ERROR", Meaning::Trouble),
];

/// `code` where the sub_code has no row. 40004 (business failure) is not here: there the sub_code alone counts.
const CODES: &[(&str, Meaning)] = &[
    ("20000", Meaning::Trouble),
    ("20001", Meaning::Mistake),
    ("40001", Meaning::Mistake),
    ("40002", Meaning::Mistake),
    ("40005", Meaning::Busy),
    ("40006", Meaning::Mistake),
];

fn row(table: &[(&str, Meaning)], code: &str) -> Option<Meaning> {
    table.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning)
}

fn meaning(code: &str, sub_code: &str) -> Option<Meaning> {
    let sub_code = sub_code.to_ascii_uppercase();
    let prefixes = ["ACQ.", "AQC.", "ISV.", "ISP.", "AOP."];
    let plain = prefixes.iter().find_map(|prefix| sub_code.strip_prefix(prefix)).unwrap_or(&sub_code);
    match (code, row(SUB_CODES, plain)) {
        // The gateway itself is in trouble: whatever else it says, nobody knows.
        ("20000", _) => Some(Meaning::Trouble),
        (_, Some(meaning)) => Some(meaning),
        (code, None) => row(CODES, code),
    }
}

/// 10000: the call was carried out. For some methods that is not yet what one wanted.
pub(super) fn is_success(content: &Object<'_>) -> bool {
    text_or_digits(content, "code") == Some(SUCCESS)
}

/// A verified answer with another code.
pub(super) fn read(call: &ApiCall, answering: Answering<'_>, content: &Object<'_>) -> ApiAnswer {
    let Some(code) = text_or_digits(content, "code") else {
        return ApiAnswer::Unknown(doubt("unreadable", "the answer has no code"));
    };
    if let (IN_PROCESS, Ask::Refund(_)) = (code, &call.ask) {
        let state = ReplyState::Refund(RefundState::Processing);
        return answering.finish(Ok(crate::answer::Read::state(state, code)));
    }
    let sub_code = text_or_digits(content, "sub_code").unwrap_or_default();
    let detail = text_or_digits(content, "sub_msg").or_else(|| text_or_digits(content, "msg")).unwrap_or_default();
    let word = if sub_code.is_empty() { code } else { sub_code };
    resolve(meaning(code, sub_code), &Code { word, detail }, &call.ask, answering)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_row() {
        for table in [SUB_CODES, CODES] {
            for (index, (code, _)) in table.iter().enumerate() {
                assert!(table.iter().skip(index + 1).all(|(other, _)| other != code), "{code}");
            }
        }
    }

    #[test]
    fn spellings_of_one_code_mean_the_same() {
        for sub_code in [
            "ACQ.SYSTEM_ERROR",
            "AQC.SYSTEM_ERROR",
            "SYSTEM_ERROR",
            "acq.system_error",
            "aop.unknow-error",
            "isp.unknow-error",
        ] {
            assert_eq!(meaning("40004", sub_code), Some(Meaning::Trouble), "{sub_code}");
        }
        for (code, sub_code) in [("40004", "isv.app-call-limited"), ("40005", ""), ("40002", "method-call-limited")] {
            assert_eq!(meaning(code, sub_code), Some(Meaning::Busy), "{code} {sub_code}");
        }
        assert_eq!(meaning("20000", "ACQ.TRADE_NOT_EXIST"), Some(Meaning::Trouble));
    }

    #[test]
    fn a_business_failure_without_a_row_has_no_meaning() {
        for sub_code in ["", "ACQ.SOMETHING_NEW", "isp.bill_not_exist"] {
            assert_eq!(meaning("40004", sub_code), None, "{sub_code}");
        }
        assert_eq!(meaning("49999", ""), None);
    }
}
