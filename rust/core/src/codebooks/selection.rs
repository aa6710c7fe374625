//! Which codewords a code may combine: the paper's schemes.

use crate::error::{Error, Result, argument};

/// How codewords may be chosen: the paper's schemes. With M = 1 all three are k-means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// One codeword from each of M different codebooks.
    Group,
    /// M codewords, with repetition allowed, from one shared codebook.
    MSelection,
    /// M different codewords from one shared codebook.
    MCombination,
}

impl Selection {
    /// Every scheme, the least constrained first.
    pub const ALL: [Selection; 3] = [Selection::Group, Selection::MSelection, Selection::MCombination];

    /// The name used in files and in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Selection::Group => "group",
            Selection::MSelection => "m-selection",
            Selection::MCombination => "m-combination",
        }
    }

    /// Whether all M codebooks are the same.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self != Selection::Group
    }
}

impl std::str::FromStr for Selection {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Selection::ALL.into_iter().find(|selection| selection.name() == name);
        found.ok_or_else(|| {
            argument!("selection", "is {name:?}: want \"group\", \"m-selection\" or \"m-combination\"")
        })
    }
}
