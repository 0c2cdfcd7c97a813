//! Guards the life of a server: one process per embedded ledger, keys that reload, a stop that loses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

use paidonce_store::Migrations;
use serde_json::{Value, json};

use super::*;
use crate::client::{Call, Client, Remote};
use crate::config::Environment;
use crate::exit::{self, Exit};

const TOKEN: &str = "test-token-0123456789abcdef";

fn config(folder: &Path, token: &str) -> Config {
    // A second install in this process is refused, and the first one is the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    std::fs::write(folder.join("key.pem"), include_str!("../config/test_public_key.pem")).unwrap();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[database]\ndata_dir = \"data\"\n\
         [[alipay]]\nseller_id = \"2088000000000001\"\n[[alipay.apps]]\napp_id = \"2021000000000001\"\nalipay_public_key_file = \"key.pem\"\n\
         [[tokens]]\nname = \"shop\"\nscopes = [\"operator\"]\nsecret = \"{token}\"\n"
    );
    Config::parse(Some(&folder.join("paidonce.toml")), &text, &Environment::default()).unwrap()
}

async fn start(config: &Config) -> anyhow::Result<Running> {
    Running::start(config, OpenPlan::durable(Migrations::Apply)).await
}

/// A client whose token stands in a file of its own, as on a command line.
fn client(folder: &Path, running: &Running, token: &str) -> Client {
    let token_file = folder.join(format!("{token}.token"));
    std::fs::write(&token_file, format!("{token}\n")).unwrap();
    Client::try_new(&Remote { server: running.url(), token_file: Some(token_file), json: false }).unwrap()
}

fn open_order() -> Value {
    json!({ "order_no": "A-1", "amount_minor": 8888, "currency": "CNY", "accounts": ["alipay:2088000000000001"] })
}

#[tokio::test]
async fn what_was_answered_before_a_stop_is_there_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), TOKEN);
    let running = start(&config).await.unwrap();
    let opened =
        client(folder.path(), &running, TOKEN).send(Call::post(&["v1", "orders"], open_order())).await.unwrap();
    assert_eq!(opened["status"], "PENDING");
    running.stop().await;
    let running = start(&config).await.unwrap();
    let found = client(folder.path(), &running, TOKEN).send(Call::get(&["v1", "orders", "A-1"])).await.unwrap();
    assert_eq!(found["amount_minor"], 8888);
    running.stop().await;
}

#[tokio::test]
async fn a_second_server_on_one_embedded_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), TOKEN);
    let running = start(&config).await.unwrap();
    let error = start(&config).await.err().expect("the ledger is taken");
    assert_eq!(exit::of_error(&error), Exit::Unreachable, "{error:#}");
    assert!(format!("{error:#}").contains("another process has this ledger open"), "{error:#}");
    running.stop().await;
    start(&config).await.expect("the lock is free again").stop().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_and_leaves_the_ledger_free() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = start(&config(other.path(), TOKEN)).await.unwrap();
    let mut config = config(folder.path(), TOKEN);
    config.listen = running.address();
    let error = start(&config).await.err().expect("the address is taken");
    assert!(format!("{error:#}").contains("can't listen on"), "{error:#}");
    config.listen.set_port(0);
    start(&config).await.expect("the ledger is free").stop().await;
    running.stop().await;
}

#[tokio::test]
async fn a_reload_puts_new_tokens_in_place_of_the_old_ones_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&config(folder.path(), TOKEN)).await.unwrap();
    let (old, new) =
        (client(folder.path(), &running, TOKEN), client(folder.path(), &running, "another-token-0123456789"));
    let refused = new.send(Call::get(&["v1", "orders"])).await.unwrap_err();
    assert_eq!(exit::of_error(&refused), Exit::Usage, "{refused:#}");
    running.reload(&config(folder.path(), "another-token-0123456789"));
    new.send(Call::get(&["v1", "orders"])).await.unwrap();
    old.send(Call::get(&["v1", "orders"])).await.unwrap_err();
    running.stop().await;
}

#[tokio::test]
async fn what_the_server_refuses_and_a_server_that_is_away_have_their_own_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&config(folder.path(), TOKEN)).await.unwrap();
    let client = client(folder.path(), &running, TOKEN);
    let refused = client.send(Call::get(&["v1", "orders", "NOPE"])).await.unwrap_err();
    assert_eq!(exit::of_error(&refused), Exit::Refused, "{refused:#}");
    running.stop().await;
    let away = client.send(Call::get(&["v1", "orders", "NOPE"])).await.unwrap_err();
    assert_eq!(exit::of_error(&away), Exit::Unreachable, "{away:#}");
}
