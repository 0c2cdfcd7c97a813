//! A ledger with both platforms played by the sandbox. Their clocks move together; callbacks and the ledger's own calls happen
//! when the test lets time pass.

use paidonce_sandbox::{Advance, Delivery, OrderState, Sandbox, SandboxOptions};
use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::config::Config;
use paidonce_tests::database::Engine;
use paidonce_tests::forward::Forward;
use serde_json::Value;

/// Both sides.
pub(crate) struct Town {
    pub(crate) app: TestApp,
    pub(crate) sandbox: Sandbox,
    pub(crate) forward: Forward,
    _dir: tempfile::TempDir,
}

impl Town {
    pub(crate) async fn start(
        engine: Engine,
        change: impl FnOnce(&mut SandboxOptions),
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("paidonce-sandbox-").tempdir().expect("a temporary directory");
        let mut options = SandboxOptions::new(dir.path().to_owned(), "http://127.0.0.1:1".to_owned());
        options.delivery = Delivery::ByHand;
        change(&mut options);
        let sandbox = Sandbox::start(options).await.expect("start the sandbox");
        let accounts = sandbox.accounts_toml().expect("the accounts");
        let config = |config: &mut Config| {
            config.sandbox_accounts = Some(accounts);
            configure(config);
        };
        let app = TestApp::builder(engine).asking().config(config).start().await;
        let forward = Forward::start(app.addr()).await;
        sandbox.set_notify_base(&forward.url());
        Self { app, sandbox, forward, _dir: dir }
    }

    /// Time passes; then callbacks and the ledger's own calls happen at once.
    pub(crate) async fn tick(&self, seconds: i64) {
        self.move_clocks(seconds).await;
        let (_, relayed) = futures_util::future::join(self.sandbox.deliver_now(), self.app.try_relay(0)).await;
        relayed.expect("the ledger answers");
    }

    /// Moves both clocks; nothing happens yet.
    pub(crate) async fn move_clocks(&self, seconds: i64) {
        self.sandbox.advance(Advance { seconds: seconds.unsigned_abs(), ledger_moves_too: true });
        self.app.advance(seconds).await;
    }

    /// Opens an order as the shop does.
    pub(crate) async fn open(&self, terms: &Value) {
        let answer = self.app.send(&shop_request("/v1/orders", terms)).await;
        assert_eq!(answer.status, 201, "{terms} was answered {}", answer.text());
    }

    /// An order at the platforms.
    pub(crate) fn at_the_platform(&self, order_no: &str) -> OrderState {
        let state = self.sandbox.play(|platforms, now| platforms.state(Some(order_no), now));
        state.orders.into_iter().next().expect("the platform has the order")
    }

    pub(crate) async fn finish(self) {
        self.app.pass_leases().await;
        self.app.finish().await;
        self.sandbox.stop().await;
    }
}
