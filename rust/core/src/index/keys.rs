//! Keys: strings that identify the vectors of an index, in the order of their positions.
//!
//! All strings lie in one text, so a key takes its own bytes plus about twenty. A hash table of positions finds them:
//! open addressing, at most half full.

use crate::error::{Result, argument, invalid};
use ahash::RandomState;
use std::iter;

/// Keys that are looked up at once.
const TOGETHER: usize = 16;
/// A slot of the table that holds no position.
const EMPTY: u32 = u32::MAX;

/// Distinct strings, one per position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    texts: Texts,
    table: Table,
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

/// Keys of vectors to be added: checked, but not added yet.
pub(super) struct NewKeys {
    texts: Texts,
    /// A table for all keys, if that of the old keys is too small: building it takes long, swapping it in does not.
    grown: Option<Table>,
}

impl Keys {
    /// Restores the keys of a file: one text, and the end of each key in it.
    ///
    /// # Errors
    /// They do not fit each other, or a key is repeated.
    pub(crate) fn restored(text: String, ends: &[i64]) -> Result<Self> {
        let ends: Option<Vec<usize>> = ends.iter().map(|&end| usize::try_from(end).ok()).collect();
        let fits = |ends: &Vec<usize>| {
            ends.is_sorted()
                && ends.last().copied().unwrap_or(0) == text.len()
                && ends.iter().all(|&end| text.is_char_boundary(end))
        };
        let ends = ends.filter(fits).ok_or_else(|| invalid!("the ends of keys do not fit their text"))?;
        let texts = Texts { text, ends };
        let mut table = Table::with_room(texts.len())?;
        table.insert_all(&texts, 0)?;
        Ok(Self { texts, table })
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The key of the vector at a position.
    pub(super) fn at(&self, position: usize) -> &str {
        self.texts.at(position)
    }

    /// All keys in one text, and the end of each.
    pub(crate) fn parts(&self) -> (&str, &[usize]) {
        (&self.texts.text, &self.texts.ends)
    }

    /// The position of a key.
    pub(super) fn position(&self, key: &str) -> Option<usize> {
        self.table.find(key, &self.texts)
    }

    /// The positions of keys, in their order.
    pub(super) fn positions<S: AsRef<str>>(&self, keys: &[S]) -> Vec<Option<usize>> {
        self.table.find_all(keys, &self.texts)
    }

    /// Checks keys that are about to be added.
    ///
    /// # Errors
    /// A key is repeated, or already present.
    pub(super) fn added<S: AsRef<str>>(&self, keys: &[S]) -> Result<NewKeys> {
        let texts = Texts::new(keys.iter().map(AsRef::as_ref));
        let total = self.len() + texts.len();
        Table::with_room(texts.len())?.insert_all(&texts, 0)?;
        if let Some(key) = texts.iter().find(|key| self.position(key).is_some()) {
            return Err(argument!("ids", "holds {}, which the index has already", shown(key)));
        }
        if self.table.has_room(total) {
            return Ok(NewKeys { texts, grown: None });
        }
        // Twice the room needed, so that adding keys one by one does not rebuild it each time.
        let mut grown = Table::with_room(2 * total)?;
        grown.insert_all(&self.texts, 0)?;
        grown.insert_all(&texts, self.len())?;
        Ok(NewKeys { texts, grown: Some(grown) })
    }

    /// Makes room for new keys, so that [`extend`](Self::extend) cannot fail.
    pub(super) fn reserve(&mut self, new: &NewKeys) -> Result<()> {
        let (text, ends) = (&mut self.texts.text, &mut self.texts.ends);
        text.try_reserve(new.texts.text.len())
            .and_then(|()| ends.try_reserve(new.texts.len()))
            .map_err(|error| invalid!("no memory for {} keys: {error}", new.texts.len()))
    }

    /// Adds what [`added`](Self::added) returned.
    pub(super) fn extend(&mut self, new: NewKeys) {
        let first = self.len();
        match new.grown {
            Some(grown) => self.table = grown,
            None => {
                new.texts.iter().zip(first..).for_each(|(key, position)| self.table.insert(key, position))
            }
        }
        self.texts.extend(&new.texts);
    }

    /// The keys at `positions`.
    pub(super) fn select(&self, positions: &[usize]) -> Self {
        let texts = Texts::new(positions.iter().map(|&position| self.at(position)));
        let mut table = Table::with_room(texts.len()).expect("no more than before");
        texts.iter().enumerate().for_each(|(position, key)| table.insert(key, position));
        Self { texts, table }
    }
}

/// Strings, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    fn new<'a>(keys: impl Iterator<Item = &'a str>) -> Self {
        let mut texts = Self::default();
        for key in keys {
            texts.text.push_str(key);
            texts.ends.push(texts.text.len());
        }
        texts
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn at(&self, position: usize) -> &str {
        let (first, end) = self.span(position);
        &self.text[first..end]
    }

    fn span(&self, position: usize) -> (usize, usize) {
        (position.checked_sub(1).map_or(0, |before| self.ends[before]), self.ends[position])
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|position| self.at(position))
    }

    fn extend(&mut self, other: &Self) {
        let before = self.text.len();
        self.text.push_str(&other.text);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }
}

/// A hash table of positions by key.
#[derive(Clone, Debug, Default)]
struct Table {
    /// The hash takes a fraction of the time of the standard library's, and is as hard to predict for someone who
    /// chooses keys.
    hash: RandomState,
    /// A power of two, at least twice the number of positions; or empty.
    slots: Vec<u32>,
}

impl Table {
    fn with_room(n: usize) -> Result<Self> {
        let most = EMPTY as usize / 2;
        if n > most {
            return Err(invalid!("an index holds at most {most} keys"));
        }
        Ok(Self { hash: RandomState::new(), slots: vec![EMPTY; (2 * n).next_power_of_two().max(16)] })
    }

    fn has_room(&self, n: usize) -> bool {
        2 * n <= self.slots.len()
    }

    /// The slots where a key may be, in probing order.
    fn slots(&self, key: &str) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len().wrapping_sub(1);
        let first = self.hash.hash_one(key) as usize;
        (0..=mask).map(move |step| first.wrapping_add(step) & mask)
    }

    fn find(&self, key: &str, texts: &Texts) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let held = self.slots(key).map(|slot| self.slots[slot]).take_while(|&position| position != EMPTY);
        held.map(|position| position as usize).find(|&position| texts.at(position) == key)
    }

    /// Like [`find`](Self::find), for many keys: several memory accesses wait at the same time.
    fn find_all<S: AsRef<str>>(&self, keys: &[S], texts: &Texts) -> Vec<Option<usize>> {
        if self.slots.is_empty() {
            return vec![None; keys.len()];
        }
        let mask = self.slots.len() - 1;
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(TOGETHER) {
            let (mut at, mut spans) = ([0; TOGETHER], [(0, 0); TOGETHER]);
            for (at, key) in iter::zip(&mut at, keys) {
                *at = self.slots[self.hash.hash_one(key.as_ref()) as usize & mask];
            }
            for (span, &at) in iter::zip(&mut spans, &at[..keys.len()]) {
                *span = if at == EMPTY { (0, 0) } else { texts.span(at as usize) };
            }
            found.extend(iter::zip(keys, iter::zip(at, spans)).map(|(key, (at, (first, end)))| {
                let key = key.as_ref();
                match at {
                    EMPTY => None,
                    at if texts.text[first..end] == *key => Some(at as usize),
                    _ => self.find(key, texts),
                }
            }));
        }
        found
    }

    /// Inserts a key that is not present; there must be room.
    fn insert(&mut self, key: &str, position: usize) {
        let free = self.slots(key).find(|&slot| self.slots[slot] == EMPTY).expect("half of them are");
        self.slots[free] = position as u32;
    }

    /// Inserts keys, the first of them at position `first`.
    ///
    /// # Errors
    /// A key is repeated.
    fn insert_all(&mut self, texts: &Texts, first: usize) -> Result<()> {
        for (at, key) in texts.iter().enumerate() {
            for slot in self.slots(key) {
                match (self.slots[slot] as usize).checked_sub(first) {
                    _ if self.slots[slot] == EMPTY => {
                        self.slots[slot] = (first + at) as u32;
                        break;
                    }
                    Some(other) if texts.at(other) == key => {
                        return Err(argument!("ids", "holds {} twice", shown(key)));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// A key as messages show it: text in quotes; for keys that are not strings their JSON, without the NUL that marks it.
#[must_use]
pub fn shown(key: &str) -> String {
    key.strip_prefix('\0').map_or_else(|| format!("{key:?}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_found_where_they_are(
            parts in prop::collection::vec(prop::collection::vec("[a-cé]{0,3}", 0..30), 0..6),
            kept in any::<u64>(),
        ) {
            let mut want: Vec<String> = Vec::new();
            let mut keys = Keys::default();
            for part in parts {
                let mut seen = want.clone();
                let fits = part.iter().all(|key| !seen.contains(key) && { seen.push(key.clone()); true });
                match keys.added(&part) {
                    Ok(new) => {
                        prop_assert!(fits);
                        keys.reserve(&new).unwrap();
                        keys.extend(new);
                        want = seen;
                    }
                    Err(_) => prop_assert!(!fits),
                }
            }
            let (text, ends) = keys.parts();
            let ends: Vec<i64> = ends.iter().map(|&end| end as i64).collect();
            prop_assert_eq!(&Keys::restored(text.to_owned(), &ends).unwrap(), &keys);
            let positions: Vec<usize> = (0..want.len()).filter(|i| kept >> (i % 64) & 1 == 1).collect();
            for (keys, want) in [
                (keys.clone(), want.clone()),
                (keys.select(&positions), positions.iter().map(|&i| want[i].clone()).collect()),
            ] {
                for key in ["", "a", "b", "ab", "é", "zz"].into_iter().chain(want.iter().map(String::as_str)) {
                    prop_assert_eq!(keys.position(key), want.iter().position(|w| w == key));
                }
                prop_assert!((0..want.len()).all(|i| keys.at(i) == want[i]));
                let asked: Vec<&str> = ["", "a", "zz"].into_iter().chain(want.iter().map(String::as_str)).collect();
                let found: Vec<_> = asked.iter().map(|key| keys.position(key)).collect();
                prop_assert_eq!(keys.positions(&asked), found);
            }
        }
    }

    #[test]
    fn damaged_keys_are_refused() {
        for (text, ends) in
            [("ab", vec![1]), ("ab", vec![2, 1]), ("é", vec![1, 2]), ("aa", vec![1, 2]), ("a", vec![-1, 1])]
        {
            assert!(Keys::restored(text.to_owned(), &ends).is_err(), "{text} {ends:?}");
        }
    }
}
