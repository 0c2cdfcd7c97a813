//! Amounts: integer fen inside, yuan text where a platform writes yuan. Never a floating-point number.

/// `88.88` for 8888.
#[must_use]
pub fn yuan(minor: i64) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let minor = minor.unsigned_abs();
    format!("{sign}{}.{:02}", minor / 100, minor % 100)
}

/// Reads `88.88`, `88.8`, `88`; `None` for anything else, more decimals, or a sign.
#[must_use]
pub fn parse_yuan(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let fen: i64 = format!("{decimals:0<2}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(100)?.checked_add(fen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yuan_text_is_exact_both_ways() {
        for (minor, text) in [(1, "0.01"), (8888, "88.88"), (100, "1.00"), (-6, "-0.06")] {
            assert_eq!(yuan(minor), text);
        }
        for (text, minor) in [("0.01", Some(1)), ("88.8", Some(8880)), ("1", Some(100)), ("1.001", None), ("-1", None)]
        {
            assert_eq!(parse_yuan(text), minor, "{text}");
        }
    }
}
