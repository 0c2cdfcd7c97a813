//! Asking Alipay through its gateway (protocol facts B3 to B6).
//!
//! | step | module |
//! |---|---|
//! | method, `biz_content`, sorted and signed parameters | `request` |
//! | the signed node of the answer, as it stands in the raw bytes | `envelope` |
//! | an error code: refusal, final word or doubt | `codes` |
//! | the content, by the readers of the notifications | `answer` |

mod answer;
mod codes;
mod envelope;
mod request;

use std::sync::Arc;

use paidonce_order::ids::AccountRef;

use super::account::AlipayAccount;
use crate::answer::{Answering, doubt, object, refused};
use crate::api::{ApiAnswer, ApiCall, ApiMoment, ApiRequest, ApiResponse, CallProblem, ChannelApi, Remedy};

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

impl ChannelApi for AlipayApi {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn request(&self, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem> {
        request::build(&self.account, call, moment)
    }

    fn read(&self, call: &ApiCall, response: ApiResponse<'_>) -> ApiAnswer {
        let Some(method) = request::method(&call.ask) else {
            return refused("no_such_call", "Alipay has no such call", Remedy::Person);
        };
        let Some((app_id, app, _)) = self.account.asking_app() else {
            return refused("no_credentials", "no app of the account has a private key", Remedy::Person);
        };
        let node = match envelope::open(app, method, response) {
            Ok(node) => node,
            Err(doubt) => return ApiAnswer::Unknown(doubt),
        };
        let key_id = format!("{app_id}/{}", app.sign_type.as_str());
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
