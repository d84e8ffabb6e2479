//! Responses to accepted requests: printed at once, or after the request has ended (`--wait`).

use clap::Args;
use serde_json::Value;

use crate::commands::Context;
use crate::commands::display;
use crate::commands::request_wait;
use crate::failure::Result;
use crate::terminal::output;

/// The `--wait` option of commands whose work goes on after the response.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Wait {
    /// Wait until the request has ended
    #[arg(long)]
    wait: bool,
}

/// Prints the response, and with `--wait` also how the request ended. With `--json` only the last body is printed.
pub(crate) async fn report_accepted(ctx: &Context<'_>, accepted: Value, wait: Wait) -> Result<()> {
    let requests = request_ids(&accepted);
    if !wait.wait || requests.is_empty() {
        return display::print_body(ctx, &accepted, output::message_of);
    }
    if !ctx.options.json {
        output::print_text(&output::message_of(&accepted))?;
    }
    let mut last = accepted;
    for request in requests {
        last = request_wait::wait_for_accepted_request(ctx, &request).await?;
    }
    display::print_body(ctx, &last, output::message_of)
}

/// The IDs of the requests in a response.
fn request_ids(accepted: &Value) -> Vec<String> {
    let one = accepted.get("request_id").into_iter();
    let all = one.chain(accepted.get("request_ids").and_then(Value::as_array).into_iter().flatten());
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}
