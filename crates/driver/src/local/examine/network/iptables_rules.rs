//! Rules of the legacy iptables, which `nft` does not show, from the output of `iptables-legacy-save`.

use super::nft_rules::{Obstacle, iptables_remedy};

/// Returns the obstacle to forwarded packets, if there is one.
pub(super) fn find_legacy_obstacle(saved: &str, ours: &str, uplink: &str) -> Option<Obstacle> {
    let filter: Vec<&str> = saved
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "*filter")
        .skip(1)
        .take_while(|line| *line != "COMMIT")
        .collect();
    let has = |chain: &str| filter.iter().any(|line| line.starts_with(&format!(":{chain} ")));
    if !filter.iter().any(|line| line.starts_with(":FORWARD DROP")) {
        return None;
    }
    let lets_pass = |option: &str| {
        filter.iter().any(|line| {
            let mut words = line.split_whitespace();
            let named = words.find(|word| *word == option).and_then(|_| words.next());
            line.ends_with("-j ACCEPT")
                && !line.contains(" ! ")
                && named.is_some_and(|name| is_own_interface(name, ours))
        })
    };
    if lets_pass("-i") && lets_pass("-o") {
        return None;
    }
    let chain = if has("DOCKER-USER") { "DOCKER-USER" } else { "FORWARD" };
    let remedy =
        iptables_remedy(chain, (ours, uplink), has("ufw-user-forward")).replace("iptables ", "iptables-legacy ");
    Some(Obstacle { place: "iptables-legacy filter FORWARD".into(), how: "its policy is drop", remedy })
}

fn is_own_interface(name: &str, ours: &str) -> bool {
    name.strip_suffix('+').map_or(name == ours, |start| ours.starts_with(start) || start.starts_with(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_policy_is_an_obstacle_until_ours_pass() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n\
                     -A FORWARD -i docker0 -o eth0 -j ACCEPT\nCOMMIT\n";
        let found = find_legacy_obstacle(saved, "tabc123", "eth0").unwrap();
        assert!(found.remedy.starts_with("iptables-legacy -I FORWARD -i 'tabc123+' -o 'eth0' -j ACCEPT"), "{found:?}");
        let mended = saved.replace(
            "-A FORWARD",
            "-A FORWARD -i tabc123+ -o eth0 -j ACCEPT\n-A FORWARD -o tabc123+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD",
        );
        assert_eq!(find_legacy_obstacle(&mended, "tabc123", "eth0"), None);
        assert_eq!(find_legacy_obstacle("*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", "tabc123", "eth0"), None);
        assert_eq!(
            find_legacy_obstacle("*mangle\n:FORWARD DROP [0:0]\nCOMMIT\n", "tabc123", "eth0"),
            None,
            "another table"
        );
        assert_eq!(find_legacy_obstacle("", "tabc123", "eth0"), None);
    }
}
