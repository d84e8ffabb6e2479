//! Permits of members and of their groups: neither a member nor a group, however many members it has, can take all.

use std::hash::Hash;

use super::{FairShare, Permit, UsedUp};

/// A number of permits of which each member, and each group, may have a share.
#[derive(Debug)]
pub struct GroupedShare<M: Eq + Hash, G: Eq + Hash> {
    members: FairShare<M>,
    groups: FairShare<G>,
}

/// A permit of a member and of its group, released on drop.
#[derive(Debug)]
#[must_use = "the permit is released on drop"]
pub struct GroupedPermit<M: Eq + Hash, G: Eq + Hash> {
    _member: Option<Permit<M>>,
    _group: Option<Permit<G>>,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedUsedUp {
    /// The member has its whole share.
    Member,
    /// The members of the group together have its whole share.
    Group,
    /// All together have the total.
    Total,
}

impl<M: Clone + Eq + Hash, G: Clone + Eq + Hash> GroupedShare<M, G> {
    /// Creates a number of permits, and the shares of a member and of a group.
    pub fn new(total: usize, per_member: usize, per_group: usize) -> Self {
        GroupedShare { members: FairShare::new(total, per_member), groups: FairShare::new(total, per_group) }
    }

    /// Returns a permit if one is free. A member may have no group, and a group may act without a member.
    pub fn try_acquire(&self, member: Option<&M>, group: Option<&G>) -> Result<GroupedPermit<M, G>, GroupedUsedUp> {
        let refused = |used_up, share| match used_up {
            UsedUp::Share => share,
            UsedUp::Total => GroupedUsedUp::Total,
        };
        let of_member = member.map(|member| self.members.try_acquire(member, 1)).transpose();
        let of_member = of_member.map_err(|used_up| refused(used_up, GroupedUsedUp::Member))?;
        let of_group = group.map(|group| self.groups.try_acquire(group, 1)).transpose();
        let of_group = of_group.map_err(|used_up| refused(used_up, GroupedUsedUp::Group))?;
        Ok(GroupedPermit { _member: of_member, _group: of_group })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither a member nor a group has more than its share, and every permit is released.
    #[test]
    fn members_and_groups_have_shares() {
        let shares = GroupedShare::new(5, 2, 3);
        let why = |member, group| shares.try_acquire(member, group).err();
        let held: Vec<_> = (0..2).map(|_| shares.try_acquire(Some(&1), Some(&'a')).unwrap()).collect();
        assert_eq!(why(Some(&1), Some(&'a')), Some(GroupedUsedUp::Member));
        let third = shares.try_acquire(Some(&2), Some(&'a')).unwrap();
        assert_eq!(why(Some(&2), Some(&'a')), Some(GroupedUsedUp::Group));
        assert_eq!(why(None, Some(&'a')), Some(GroupedUsedUp::Group), "a group without a member counts as well");
        assert_eq!((why(Some(&3), Some(&'b')), why(Some(&4), None)), (None, None));
        let others: Vec<_> = (5..7).map(|member| shares.try_acquire(Some(&member), None).unwrap()).collect();
        assert_eq!(why(Some(&8), Some(&'b')), Some(GroupedUsedUp::Total));
        drop((held, third, others));
        assert_eq!((why(Some(&1), Some(&'a')), why(Some(&2), Some(&'a'))), (None, None));
    }
}
