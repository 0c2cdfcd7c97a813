#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use super::*;

fn parse(text: &str) -> Result<Config, Problems> {
    Config::parse(None, text, &Environment::default())
}

fn problems(text: &str) -> Vec<String> {
    parse(text).unwrap_err().to_string().lines().skip(1).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn nothing_at_all_gives_a_loopback_server_on_the_embedded_database() {
    let config = parse("").unwrap();
    assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
    assert_eq!(config.database.url, DatabaseUrl::Sqlite);
    assert_eq!(config.effects, EffectsConfig::default());
    assert_eq!(config.effects.retry_seconds, [60, 300, 1800]);
}

#[test]
fn all_problems_are_reported_together_each_with_its_line_and_what_to_do() {
    let found = problems(
        "[server]\nlisten = \"nowhere\"\nlissten = 1\n\n[database]\nurl = \"mysql://x\"\nwriters = 0\n\n[[wxpay]]\nmchid = \"a b\"\n\n\
         [[tokens]]\nname = \"shop\"\nscopes = [\"root\"]\nsecret = \"short\"\n\n[[subscribers]]\nname = \"w\"\nevents = [\"*\"]\nurl = \"ftp://x\"\nsecret_ref = \"w\"\n",
    );
    let expected = [
        "(no file):2: server.listen must be an address and a port",
        "(no file):3: server.lissten is not a known key: known here are connections_max, listen",
        "(no file):6: database.url (or DATABASE_URL) must be sqlite or postgres://",
        "(no file):7: database.writers must be a whole number from 1 to 64, not 0",
        "(no file):9: wxpay[1].appids is missing",
        "(no file):9: wxpay[1].apiv3_key_file is missing",
        "(no file):9: wxpay[1].platform_keys is missing",
        "(no file):10: wxpay[1].mchid: account may only have",
        "(no file):14: tokens[1].scopes may have service, finance and operator, not \"root\"",
        "(no file):20: subscribers[1].url must be a http:// or https:// address",
        "(no file):21: subscribers[1].secret_ref \"w\" is not in [secrets]",
    ];
    for wanted in expected {
        assert!(found.iter().any(|line| line.starts_with(wanted)), "{wanted:?} is not among {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn broken_toml_is_reported_with_its_line_and_the_rest_is_still_read() {
    let found = problems("[server]\nlisten = \n[database]\nwriters = 99\n");
    assert!(found[0].starts_with("(no file):2: this is not TOML"), "{found:#?}");
    assert!(found.iter().any(|line| line.contains("database.writers")), "{found:#?}");
}

#[test]
fn a_wrong_type_names_the_type_that_is_wanted() {
    let found = problems(
        "[effects]\nretry_seconds = 60\njitter_percent = \"ten\"\n[[subscribers]]\nname = 1\nevents = [2]\nurl = \"http://x/\"\nsecret_ref = \"s\"\n[secrets]\ns = 5\n",
    );
    assert!(found.iter().any(|line| line.contains(":2: effects.retry_seconds must be a list")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains(":3: effects.jitter_percent must be a whole number")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains(":5: subscribers[1].name must be a text")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains(":6: subscribers[1].events must be a list of texts")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains(":10: secrets.s must be written as")), "{found:#?}");
}

#[test]
fn database_url_of_the_environment_wins_and_its_password_is_never_shown() {
    let env =
        Environment::of(&[("DATABASE_URL", "postgres://ledger:pa55@db/ledger"), ("PAIDONCE_LISTEN", "127.0.0.1:9")]);
    let config = Config::parse(None, "[database]\nurl = \"sqlite\"\n", &env).unwrap();
    assert_eq!(config.listen.port(), 9);
    assert!(matches!(&config.database.url, DatabaseUrl::Postgres(url) if url.reveal().contains("pa55")));
    assert!(!format!("{config:?}").contains("pa55"));
}

#[test]
fn secrets_come_from_values_files_and_variables_and_never_show() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("shop.token"), "shop-token-0123456789\n").unwrap();
    std::fs::write(dir.path().join("warehouse"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let text = "[[tokens]]\nname = \"shop\"\nscopes = [\"service\"]\nsecret_file = \"shop.token\"\n[[tokens]]\nname = \"ops\"\nscopes = [\"operator\"]\n\
                [secrets]\nwarehouse = { file = \"warehouse\" }\n";
    let env = Environment::of(&[("PAIDONCE_TOKENS_OPS_SECRET", "ops-token-0123456789")]);
    let config = Config::parse(Some(&dir.path().join("paidonce.toml")), text, &env).unwrap();
    assert_eq!(config.tokens.len(), 2);
    assert_eq!(config.secrets["warehouse"].len(), 1);
    let shown = format!("{config:?}");
    for hidden in ["shop-token", "ops-token", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
        assert!(!shown.contains(hidden), "{hidden} shows in Debug");
    }
}

#[test]
fn a_secret_that_is_wrong_is_not_repeated_in_the_problem() {
    let found = problems(
        "[secrets]\nw = { value = \"whsec_hunter2\" }\n[[tokens]]\nname = \"t\"\nscopes = [\"service\"]\nsecret = \"hunter2\"\n",
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(!found.concat().contains("hunter2"));
}

#[test]
fn an_unreadable_key_file_is_reported_with_its_line_and_path() {
    let found = problems(
        "[[alipay]]\nseller_id = \"2088000000000001\"\n[[alipay.apps]]\napp_id = \"2021\"\nalipay_public_key_file = \"no/such/file\"\n",
    );
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains(":5: alipay[1].apps[1].alipay_public_key_file: can't use no/such/file"), "{found:#?}");
}

#[test]
fn names_given_twice_are_refused() {
    let token = |name: &str, secret: &str| {
        format!("[[tokens]]\nname = \"{name}\"\nscopes = [\"finance\"]\nsecret = \"{secret}\"\n")
    };
    let found = problems(&(token("a", "0123456789abcdef") + &token("a", "fedcba9876543210")));
    assert!(found[0].contains(":5: name \"a\" is given twice"), "{found:#?}");
    let found = problems(&(token("a", "0123456789abcdef") + &token("b", "0123456789abcdef")));
    assert!(found[0].contains("have the same secret"), "{found:#?}");
}

#[test]
fn a_misspelt_variable_is_a_warning() {
    let config = Config::parse(None, "", &Environment::of(&[("PAIDONCE_LISTN", "127.0.0.1:1")])).unwrap();
    assert!(config.warnings[0].text.contains("PAIDONCE_LISTN"), "{:?}", config.warnings);
}

#[test]
fn the_example_file_has_no_problem_and_no_warning() {
    let example = include_str!("../../../../paidonce.example.toml");
    let (dir, _) = asking_example();
    let config = Config::parse(Some(&dir.path().join("paidonce.toml")), example, &Environment::default());
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.warnings, []);
    assert_eq!((config.accounts.summary.len(), config.tokens.len()), (2, 3));
    assert_eq!(config.subscribers[0].value.name, "warehouse");
}

/// A test key: its private half was thrown away.
const TEST_PUBLIC_KEY: &str = include_str!("test_public_key.pem");

#[test]
fn a_key_that_is_no_key_is_reported_with_the_line_of_its_table() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("good.pem"), TEST_PUBLIC_KEY).unwrap();
    std::fs::write(dir.path().join("bad.pem"), "not a key").unwrap();
    let text = "[[wxpay]]\nmchid = \"1900000001\"\nappids = [\"wx0000000000000001\", \"wx-\"]\napiv3_key = \"too short\"\n\
                [[wxpay.platform_keys]]\npublic_key_id = \"PUB_KEY_ID_01\"\npublic_key_file = \"good.pem\"\n\
                [[wxpay.platform_keys]]\npublic_key_id = \"PUB_KEY_ID_02\"\npublic_key_file = \"bad.pem\"\n";
    let problems = Config::parse(Some(&dir.path().join("p.toml")), text, &Environment::default()).unwrap_err();
    let found: Vec<_> = problems.list.iter().map(|problem| (problem.line, problem.text.as_str())).collect();
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].0 == Some(3) && found[0].1.starts_with("wxpay[1].appids[2]: "), "{found:#?}");
    assert!(found[1].0 == Some(4) && found[1].1.starts_with("wxpay[1].apiv3_key: "), "{found:#?}");
    assert!(found[2].0 == Some(8) && found[2].1.starts_with("wxpay[1].platform_keys[2]"), "{found:#?}");
    assert!(!problems.to_string().contains("too short"), "{problems}");
}

/// A key of this test alone, PKCS#8 PEM.
fn private_key() -> String {
    use aws_lc_rs::encoding::AsDer as _;
    use base64::Engine as _;
    let key = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = key.as_der().unwrap();
    let base64 = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    format!("-----BEGIN PRIVATE KEY-----\n{base64}\n-----END PRIVATE KEY-----\n")
}

/// A folder with every key file that the example names, and the example with its lines for asking.
fn asking_example() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["keys", "secrets"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    for (index, token) in ["shop", "finance", "operator"].iter().enumerate() {
        put(&format!("secrets/{token}.token"), &format!("test-token-number-{index}"));
    }
    put("secrets/apiv3.key", "test-only-apiv3-key-0123456789ab");
    put("secrets/warehouse.whsec", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    put("keys/wechatpay_pub.pem", TEST_PUBLIC_KEY);
    put("keys/alipay_public_key.txt", TEST_PUBLIC_KEY);
    put("secrets/apiclient_key.pem", &private_key());
    put("secrets/app_private_key.pem", &private_key());
    let for_asking = ["# merchant_", "# api_url", "# app_private_key_file"];
    let example = include_str!("../../../../paidonce.example.toml");
    let uncomment = |line: &str| {
        let wanted = for_asking.iter().any(|start| line.starts_with(start));
        if wanted { line.replacen("# ", "", 1) } else { line.to_owned() }
    };
    let text = example.lines().map(uncomment).collect::<Vec<_>>().join("\n");
    (dir, text)
}

#[test]
fn the_example_with_its_private_keys_can_ask_and_says_the_defaults() {
    let (dir, text) = asking_example();
    let config = Config::parse(Some(&dir.path().join("paidonce.toml")), &text, &Environment::default());
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.warnings, []);
    for (account, summary) in &config.accounts.summary {
        assert!(config.accounts.ours.find_api(account).is_some(), "{account}: {summary}");
        assert!(summary.ends_with("asks its platform"), "{account}: {summary}");
    }
    assert_eq!(config.channel_calls, ChannelCallsConfig::default());
    assert_eq!(config.surplus, SurplusConfig::default());
    assert_eq!(config.money, paidonce_http::Money::Real);
    assert!(
        config.accounts.refreshed.is_empty(),
        "a public key is changed by a person: {:?}",
        config.accounts.refreshed
    );
    assert!(!format!("{config:?}").contains("PRIVATE KEY"));
}

#[test]
fn an_account_without_a_private_key_only_listens() {
    let (dir, text) = asking_example();
    let text = text.lines().filter(|line| !line.starts_with("merchant_")).collect::<Vec<_>>().join("\n");
    let config = Config::parse(Some(&dir.path().join("paidonce.toml")), &text, &Environment::default()).unwrap();
    let (account, summary) = &config.accounts.summary[0];
    assert!(config.accounts.ours.find_api(account).is_none() && summary.contains("only listens"), "{summary}");
}

#[test]
fn half_of_what_it_takes_to_ask_is_reported_with_the_other_half() {
    let (dir, text) = asking_example();
    let file = dir.path().join("paidonce.toml");
    for (left_out, wanted) in [
        ("merchant_serial", "wxpay[1].merchant_serial is missing"),
        ("merchant_private_key_file", "wxpay[1].merchant_private_key_file is missing"),
    ] {
        let half = text.lines().filter(|line| !line.starts_with(left_out)).collect::<Vec<_>>().join("\n");
        let problems = Config::parse(Some(&file), &half, &Environment::default()).unwrap_err();
        assert_eq!(problems.list.len(), 1, "{problems}");
        assert!(problems.list[0].text.starts_with(wanted), "{problems}");
    }
    let key = "app_private_key_file = \"secrets/app_private_key.pem\"";
    let half = text.replace(key, &format!("{key}\napp_cert_file = \"keys/wechatpay_pub.pem\""));
    let problems = Config::parse(Some(&file), &half, &Environment::default()).unwrap_err();
    assert_eq!(problems.list.len(), 1, "{problems}");
    assert!(problems.list[0].text.contains("app_cert_file and alipay_root_cert_file together"), "{problems}");
}

#[test]
fn a_private_key_that_is_none_is_reported_at_its_line_and_never_repeated() {
    let (dir, text) = asking_example();
    std::fs::write(dir.path().join("secrets/apiclient_key.pem"), "hunter2-is-no-key").unwrap();
    std::fs::write(dir.path().join("secrets/app_private_key.pem"), "hunter2-is-no-key").unwrap();
    let text = text.replace("5E1F00D5E1F00D", "not-a-serial-");
    let file = dir.path().join("paidonce.toml");
    let problems = Config::parse(Some(&file), &text, &Environment::default()).unwrap_err();
    assert_eq!(problems.list.len(), 3, "{problems}");
    let line_of = |start: &str| text.lines().position(|line| line.starts_with(start)).map(|index| index + 1);
    assert_eq!(problems.list[0].line, line_of("merchant_serial"), "{problems}");
    assert_eq!(problems.list[1].line, line_of("merchant_private_key_file"), "{problems}");
    assert!(problems.list[2].text.contains("alipay[1].apps[1].app_private_key"), "{problems}");
    assert!(!problems.to_string().contains("hunter2"), "{problems}");
}

#[test]
fn the_tables_about_asking_report_all_that_is_wrong_with_its_line() {
    let found = problems(
        "[channel_calls]\ncalls_per_second = 0\npoll_seconds = []\nrefund_follow_seconds = [0]\nretries = 3\n\
         [surplus]\nsecond_payment = \"keep\"\ndelay_seconds = \"ten\"\n[sandbox]\nenabled = \"yes\"\n",
    );
    let expected = [
        "(no file):2: channel_calls.calls_per_second must be a whole number from 1 to 1000",
        "(no file):3: channel_calls.poll_seconds needs 1 to 30 pauses",
        "(no file):4: channel_calls.refund_follow_seconds must be a whole number from 1",
        "(no file):5: channel_calls.retries is not a known key",
        "(no file):7: surplus.second_payment must be refund, hold or accept, not \"keep\"",
        "(no file):8: surplus.delay_seconds must be a whole number",
        "(no file):10: sandbox.enabled must be true or false",
    ];
    for wanted in expected {
        assert!(found.iter().any(|line| line.starts_with(wanted)), "{wanted:?} is not among {found:#?}");
    }
    assert_eq!(found.len(), expected.len() + 1, "an empty list of pauses after 0 was dropped is told too: {found:#?}");
}

#[test]
fn an_address_without_tls_is_a_warning_unless_the_sandbox_plays_the_platform() {
    let (dir, text) = asking_example();
    let file = dir.path().join("paidonce.toml");
    let text = text.replace("https://api.mch.weixin.qq.com", "http://127.0.0.1:9");
    let config = Config::parse(Some(&file), &text, &Environment::default()).unwrap();
    assert!(config.warnings[0].text.starts_with("wxpay[1].api_url is not https://"), "{:?}", config.warnings);
    let played = format!("{text}\n[sandbox]\nenabled = true\n");
    let config = Config::parse(Some(&file), &played, &Environment::default()).unwrap();
    assert_eq!((config.warnings.len(), config.money), (0, paidonce_http::Money::Played));
}
