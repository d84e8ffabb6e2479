//! What the engine has accepted, and will do: its words, or its end if that is waited for.

use clap::Args;
use serde_json::Value;

use crate::commands::Context;
use crate::failure::Result;
use crate::{output, show, waits};

/// For what takes time.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Wait {
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
}

/// Says what was accepted, and how it ended if that is waited for. A program reads one body: the last one.
pub(crate) async fn finish(ctx: &Context<'_>, accepted: Value, wait: Wait) -> Result<()> {
    let requests = requests(&accepted);
    if !wait.wait || requests.is_empty() {
        return show::once(ctx, &accepted, output::message);
    }
    if !ctx.options.json {
        output::print(&output::message(&accepted))?;
    }
    let mut last = accepted;
    for request in requests {
        last = waits::wait_for_accepted(ctx, &request).await?;
    }
    show::once(ctx, &last, output::message)
}

/// The requests that an answer names.
fn requests(accepted: &Value) -> Vec<String> {
    let one = accepted.get("request_id").into_iter();
    let all = one.chain(accepted.get("request_ids").and_then(Value::as_array).into_iter().flatten());
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}
