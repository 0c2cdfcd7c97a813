//! Asking Alipay through its gateway (protocol facts B3 to B6).
//!
//! | step | module |
//! |---|---|
//! | method, `biz_content`, sorted and signed parameters | `request` |
//! | the signed node of the answer, as it stands in the raw bytes | `envelope` |
//! | an error code: refusal, final word or doubt | `codes` |
//! | the content, by the readers of the notifications | `answer` |
//! | a certificate that Alipay hands out: trusted by its chain | `certificate` |

mod answer;
mod certificate;
mod codes;
mod envelope;
mod request;

use std::sync::Arc;

use paidonce_order::ids::AccountRef;

use super::account::AlipayAccount;
use crate::alipay::account::AlipayApp;
use crate::answer::{Answering, Read, doubt, object, refused};
use crate::api::{
    ApiAnswer, ApiCall, ApiMoment, ApiRequest, ApiResponse, Ask, CallProblem, ChannelApi, Remedy, ReplyState,
};

/// Asks for one seller_id.
#[derive(Debug, Clone)]
pub(crate) struct AlipayApi {
    account: Arc<AlipayAccount>,
}

impl AlipayApi {
    /// `None` when no app of the account has credentials.
    pub(crate) fn find(account: Arc<AlipayAccount>) -> Option<Self> {
        account.asking_app()?;
        Some(Self { account })
    }
}

impl AlipayApi {
    fn read_certificate(
        &self,
        (app_id, app): (&str, &AlipayApp),
        wanted_sn: &str,
        (response, node): (ApiResponse<'_>, &str),
    ) -> ApiAnswer {
        match certificate::read(app, wanted_sn, response, node) {
            Ok(key) => {
                let key_id = app.key_id(app_id, Some(&key.serial));
                let account = self.account.account();
                let answering = Answering { account, response, evidence_headers: Vec::new(), key_id };
                answering.finish(Ok(Read::state(ReplyState::Certificates(vec![key]), "10000")))
            }
            Err(doubt) => ApiAnswer::Unknown(doubt),
        }
    }
}

impl ChannelApi for AlipayApi {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn request(&self, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem> {
        request::build(&self.account, call, moment)
    }

    fn key_question(&self, response: ApiResponse<'_>) -> Option<Ask> {
        let (_, app, _) = self.account.asking_app()?;
        app.trust()?;
        let cert_sn = envelope::named_cert(response)?;
        Some(Ask::AlipayCertificate { cert_sn })
    }

    fn read(&self, call: &ApiCall, response: ApiResponse<'_>) -> ApiAnswer {
        let Some(method) = request::method(&call.ask) else {
            return refused("no_such_call", "Alipay has no such call", Remedy::Person);
        };
        let Some((app_id, app, _)) = self.account.asking_app() else {
            return refused("no_credentials", "no app of the account has a private key", Remedy::Person);
        };
        if let Ask::AlipayCertificate { cert_sn } = &call.ask {
            return self.read_certificate((app_id, app), cert_sn, (response, &envelope::node_name(method)));
        }
        let node = match envelope::open(app, method, response) {
            Ok(node) => node,
            Err(doubt) => return ApiAnswer::Unknown(doubt),
        };
        let envelope::Opened { node, cert_sn } = node;
        let key_id = app.key_id(app_id, cert_sn.as_deref());
        let answering = Answering { account: self.account.account(), response, evidence_headers: Vec::new(), key_id };
        let content = match object(node.as_bytes()) {
            Ok(content) => content,
            Err(doubt) => return ApiAnswer::Unknown(doubt),
        };
        if response.status >= 500 {
            return ApiAnswer::Unknown(doubt("server_error", format!("status {}", response.status)));
        }
        if codes::is_success(&content) {
            answer::read(call, answering, &content)
        } else {
            codes::read(call, answering, &content)
        }
    }
}
