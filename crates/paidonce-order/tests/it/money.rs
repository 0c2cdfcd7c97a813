//! Exact money. Guards every amount: no float on the way, no digit lost, nothing wraps.

use paidonce_order::money::MoneyError;
use paidonce_order::{Currency, Decimal, Money};
use proptest::prelude::*;

fn fen(text: &str) -> Result<i64, MoneyError> {
    Money::parse_major(text, Currency::CNY).map(|money| money.amount_minor)
}

fn in_currency(text: &str, code: &str) -> Result<i64, MoneyError> {
    Money::parse_major(text, Currency::parse(code).unwrap()).map(|money| money.amount_minor)
}

#[test]
fn yuan_become_fen_exactly() {
    let table = [
        ("0.01", 1),
        ("0.03", 3),
        ("0.10", 10),
        ("0.29", 29),
        ("0.57", 57),
        ("1.10", 110),
        ("1.15", 115),
        ("4.35", 435),
        ("5.06", 506),
        ("8.80", 880),
        ("8.8", 880),
        ("19.99", 1999),
        ("64.60", 6460),
        ("88", 8800),
        ("88.88", 8888),
        ("100.00", 10_000),
        ("1001.05", 100_105),
        ("100000000.00", 10_000_000_000),
        ("4503599627370497.51", 450_359_962_737_049_751),
        ("0", 0),
        ("0.00", 0),
        ("-0.00", 0),
        ("-1.56", -156),
        ("-1.56000", -156),
        ("0.0100000", 1),
        ("00088.88", 8888),
        ("92233720368547758.07", i64::MAX),
        ("-92233720368547758.08", i64::MIN),
    ];
    for (text, expected) in table {
        assert_eq!(fen(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_not_a_plain_decimal_is_refused() {
    let texts = [
        "", " ", "-", ".", "1.", ".5", "+1", "1,000.00", "1e2", "1E2", "0x10", "1 ", " 1", "1.2.3", "--1", "NaN",
        "inf", "１", "1_000", "1.-5", "¥1",
    ];
    for text in texts {
        assert!(matches!(fen(text), Err(MoneyError::NotDecimal { .. })), "{text:?} gave {:?}", fen(text));
    }
}

#[test]
fn digits_finer_than_the_currency_are_refused_and_never_rounded() {
    assert!(matches!(fen("0.001"), Err(MoneyError::TooFine { .. })));
    assert!(matches!(fen("88.885"), Err(MoneyError::TooFine { .. })));
    assert!(matches!(fen("-1.56001"), Err(MoneyError::TooFine { .. })));
    assert!(matches!(in_currency("1.5", "JPY"), Err(MoneyError::TooFine { .. })));
}

#[test]
fn amounts_beyond_i64_are_refused_and_never_wrap() {
    for text in [
        "92233720368547758.08",
        "-92233720368547758.09",
        "99999999999999999999",
        "1234567890123456789012345678901234567890",
    ] {
        assert_eq!(fen(text), Err(MoneyError::Overflow), "{text}");
    }
    let long = "9".repeat(41);
    assert!(matches!(fen(&long), Err(MoneyError::NotDecimal { .. })), "longer than any amount may be");
}

#[test]
fn each_currency_has_its_own_minor_unit() {
    assert_eq!(in_currency("500", "JPY"), Ok(500));
    assert_eq!(in_currency("500.0", "JPY"), Ok(500));
    assert_eq!(in_currency("1.234", "KWD"), Ok(1234));
    assert_eq!(in_currency("1.2345", "CLF"), Ok(12_345));
    assert_eq!(in_currency("1.23", "USD"), Ok(123));
    for code in ["", "cny", "CN", "CNYX", "XXX", "ABC", "¥"] {
        assert!(Currency::parse(code).is_err(), "{code:?}");
    }
}

#[test]
fn money_is_written_as_people_read_it() {
    let jpy = Currency::parse("JPY").unwrap();
    let kwd = Currency::parse("KWD").unwrap();
    assert_eq!(Money::fen(8888).to_string(), "88.88 CNY");
    assert_eq!(Money::fen(5).to_string(), "0.05 CNY");
    assert_eq!(Money::fen(-156).to_string(), "-1.56 CNY");
    assert_eq!(Money::fen(i64::MIN).to_string(), "-92233720368547758.08 CNY");
    assert_eq!(Money::new(500, jpy).to_string(), "500 JPY");
    assert_eq!(Money::new(1001, kwd).to_string(), "1.001 KWD");
}

#[test]
fn sums_are_checked() {
    let usd = Money::new(1, Currency::parse("USD").unwrap());
    assert_eq!(Money::fen(1).checked_add(Money::fen(2)), Ok(Money::fen(3)));
    assert_eq!(Money::fen(1).checked_sub(Money::fen(2)), Ok(Money::fen(-1)));
    assert_eq!(Money::fen(i64::MAX).checked_add(Money::fen(1)), Err(MoneyError::Overflow));
    assert_eq!(Money::fen(i64::MIN).checked_sub(Money::fen(1)), Err(MoneyError::Overflow));
    assert!(matches!(Money::fen(1).checked_add(usd), Err(MoneyError::CurrencyDiffers { .. })));
}

#[test]
fn a_fee_keeps_its_five_decimals() {
    let fee = Decimal::parse("-1.56000").unwrap();
    assert_eq!((fee.units, fee.scale), (-156_000, 5));
    assert_eq!(fee.to_string(), "-1.56000");
    assert_eq!(Decimal::parse("-0.02000").unwrap().to_string(), "-0.02000");
    assert_eq!(Decimal::parse("45.0").unwrap().to_string(), "45.0");
}

#[test]
fn json_holds_integers_and_a_code() {
    let json = serde_json::to_string(&Money::fen(8888)).unwrap();
    assert_eq!(json, r#"{"amount_minor":8888,"currency":"CNY"}"#);
    for bad in [r#"{"amount_minor":88.88,"currency":"CNY"}"#, r#"{"amount_minor":1,"currency":"cny"}"#] {
        assert!(serde_json::from_str::<Money>(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn every_amount_survives_its_text(minor in any::<i64>()) {
        let text = Money::fen(minor).to_string();
        let number = text.strip_suffix(" CNY").unwrap();
        prop_assert_eq!(fen(number), Ok(minor));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}") {
        let _ = Decimal::parse(&text).map(|decimal| decimal.to_money(Currency::CNY));
    }
}
