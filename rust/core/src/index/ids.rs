//! The numbers that identify vectors: their positions, until ids are given. No id that the index ever chose or held is
//! chosen again.

use super::among::Among;
use super::given::{CHUNK, Given};
use super::keys::{Keys, NewKeys};
use crate::error::{Error, Result, argument, invalid};
use crate::monitor::{Counter, Monitor};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

/// The number of ids above which a table of positions pays off.
const TABLE: usize = 1 << 12;

/// The history of the order of the vectors: whether they are still in the order in which a file may hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Vectors were only added, one after the other.
    #[default]
    Added,
    /// Some were removed since.
    Removed,
    /// Some were removed, and others were added after that.
    Mixed,
}

impl Order {
    const NAMES: [(Order, &str); 3] =
        [(Order::Added, "added"), (Order::Removed, "removed"), (Order::Mixed, "mixed")];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(order, _)| *order == self).expect("all have names").1
    }

    /// The order after vectors in order `other` are appended.
    fn then(self, other: Order) -> Self {
        if self == Order::Added { other } else { Order::Mixed }
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        found
            .map(|(order, _)| order)
            .ok_or_else(|| argument!("order", "is {name:?}: want \"added\", \"removed\" or \"mixed\""))
    }
}

/// An id for each position; distinct, and at least 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ids {
    numbers: Numbers,
    /// A number above every id there ever was.
    next: u64,
    order: Order,
    /// The keys, if vectors have keys. The index then chooses the ids, and they ascend.
    keys: Option<Keys>,
}

#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    /// Each id is its position; the number of vectors.
    Positions(usize),
    Given(Given),
}

/// The ids of vectors to be added: checked, but not added yet.
pub(super) struct Added {
    n: usize,
    /// `None`: they are their positions.
    ids: Option<Vec<i64>>,
    order: Order,
    /// A number above every id that the index they come from ever had.
    next: u64,
    keys: Option<NewKeys>,
}

impl Ids {
    /// No vectors yet.
    pub(super) fn new() -> Self {
        Self { numbers: Numbers::Positions(0), next: 0, order: Order::Added, keys: None }
    }

    /// The same, for vectors identified by keys from now on; there must be no vectors yet.
    pub(super) fn keyed(self) -> Self {
        Self { keys: Some(Keys::default()), ..self }
    }

    /// Restores what a file holds. Older files have neither `next` nor `order`: the next id is then one above the
    /// largest, and vectors whose ids do not ascend count as mixed, since they may be.
    pub(super) fn restored(
        n: usize,
        given: Option<Vec<i64>>,
        next: Option<u64>,
        order: Option<Order>,
        keys: Option<Keys>,
    ) -> Result<Self> {
        let mut ids = Self::new();
        let ascending = given.as_ref().is_none_or(|given| ascend(given));
        if keys.as_ref().is_some_and(|keys| keys.len() != n || !ascending) {
            return Err(invalid!("the keys do not fit the ids"));
        }
        let added = ids.checked(n, given, &())?;
        ids.extend(added);
        if let Some(next) = next {
            if next < ids.next || next > MOST {
                return Err(invalid!("the next id is {next}: want {} to {MOST}", ids.next));
            }
            ids.raise(next);
        }
        ids.order = order.unwrap_or(if ascending { Order::Added } else { Order::Mixed });
        ids.keys = keys;
        Ok(ids)
    }

    pub(super) fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// The key of the vector with this id; `None` if there is no such vector, or it has no key.
    pub(super) fn key(&self, id: i64) -> Option<&str> {
        let keys = self.keys.as_ref()?;
        let position = match &self.numbers {
            Numbers::Positions(len) => usize::try_from(id).ok().filter(|position| position < len),
            Numbers::Given(ids) => ids.search(id),
        };
        Some(keys.at(position?))
    }

    /// The ids of vectors by their keys, in the order of `keys`; `None` for keys that are not in the index.
    ///
    /// # Errors
    /// The vectors have no keys.
    pub(super) fn by_keys<S: AsRef<str>>(&self, keys: &[S]) -> Result<Vec<Option<i64>>> {
        let found = self.positions_of_keys(keys)?;
        Ok(found.into_iter().map(|position| position.map(|position| self.at(position))).collect())
    }

    /// The positions of vectors by their keys, in the order of `keys`; `None` for keys that are not in the index.
    ///
    /// # Errors
    /// The vectors have no keys.
    pub(super) fn positions_of_keys<S: AsRef<str>>(&self, keys: &[S]) -> Result<Vec<Option<usize>>> {
        Ok(self.keys.as_ref().ok_or_else(no_keys)?.positions(keys))
    }

    /// The stored ids; `None` if each id is its position.
    pub(super) fn given(&self) -> Option<&Given> {
        match &self.numbers {
            Numbers::Positions(_) => None,
            Numbers::Given(ids) => Some(ids),
        }
    }

    /// All ids; `None` if each id is its position.
    pub(super) fn all(&self) -> Option<Cow<'_, [i64]>> {
        self.given().map(Given::all)
    }

    /// The id that the next vector gets if none is given.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Positions(len) => *len,
            Numbers::Given(ids) => ids.len(),
        }
    }

    pub(super) fn at(&self, position: usize) -> i64 {
        match &self.numbers {
            Numbers::Positions(_) => position as i64,
            Numbers::Given(ids) => ids.at(position),
        }
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        match &self.numbers {
            Numbers::Positions(len) => usize::try_from(id).is_ok_and(|id| id < *len),
            Numbers::Given(ids) => ids.contains(id),
        }
    }

    /// The ids of `n` new vectors: those given, or the numbers that follow all there ever were.
    pub(super) fn added(&self, n: usize, given: Option<&[i64]>, monitor: &dyn Monitor) -> Result<Added> {
        if self.keys.is_some() && n > 0 {
            return Err(argument!(
                "ids",
                "are not keys: the vectors of this index have keys: give one for each, and no ids"
            ));
        }
        self.checked(n, given.map(<[i64]>::to_vec), monitor)
    }

    /// The ids that all vectors of another index get.
    pub(super) fn merged(&self, other: &Ids, monitor: &dyn Monitor) -> Result<Added> {
        let added = match (&self.keys, &other.keys) {
            (Some(_), Some(keys)) => {
                let keys: Vec<&str> = (0..keys.len()).map(|position| keys.at(position)).collect();
                return Ok(Added { order: other.order, ..self.added_keyed(&keys, monitor)? });
            }
            (None, None) => self.added(other.len(), other.all().as_deref(), monitor)?,
            _ => {
                let problem = "does not fit: one of the indexes has keys, the other has not";
                return Err(argument!("other", "{problem}"));
            }
        };
        let next = other.given().map_or(0, |_| other.next);
        Ok(Added { order: other.order, next, ..added })
    }

    /// The ids of new vectors with these keys, and the keys.
    pub(super) fn added_keyed<S: AsRef<str>>(&self, new: &[S], monitor: &dyn Monitor) -> Result<Added> {
        let keys = self.keys.as_ref().ok_or_else(no_keys)?.added(new)?;
        Ok(Added { keys: Some(keys), ..self.checked(new.len(), None, monitor)? })
    }

    fn checked(&self, n: usize, given: Option<Vec<i64>>, monitor: &dyn Monitor) -> Result<Added> {
        let added = |ids| Added { n, ids, order: Order::Added, next: 0, keys: None };
        if let Some(given) = given {
            self.check(&given, n, monitor)?;
            return Ok(added(Some(given)));
        }
        let last = self.next.checked_add(n as u64).filter(|&last| last <= MOST);
        let last = last.ok_or_else(|| {
            argument!("ids", "are not given, and no ids are left above the largest: give ids")
        })?;
        Ok(added(match self.numbers {
            Numbers::Positions(_) => None,
            Numbers::Given(_) => Some((self.next..last).map(|id| id as i64).collect()),
        }))
    }

    /// Adds what [`added`](Self::added) or [`merged`](Self::merged) returned.
    pub(super) fn extend(&mut self, added: Added) {
        if added.n == 0 {
            return;
        }
        self.order = self.order.then(added.order);
        if let (Some(keys), Some(new)) = (&mut self.keys, added.keys) {
            keys.extend(new);
        }
        match (&mut self.numbers, added.ids) {
            (Numbers::Positions(len), None) => {
                *len += added.n;
                self.next = *len as u64;
            }
            (_, None) => unreachable!("ids were chosen where positions are not the ids"),
            (numbers, Some(ids)) => {
                let most = largest(&ids);
                match numbers {
                    Numbers::Positions(len) => {
                        // Ids above their positions, which are not at `len` yet.
                        let all = (0..*len as i64).chain(ids);
                        *numbers = Numbers::Given(Given::new(all, most.max(*len as i64)));
                    }
                    Numbers::Given(old) => old.extend(&ids, most),
                }
                self.raise((most as u64 + 1).max(added.next));
            }
        }
    }

    /// Makes room for new ids, so that adding them cannot fail.
    pub(super) fn reserve(&mut self, added: &Added) -> Result<()> {
        let n = added.n;
        if let (Some(keys), Some(new)) = (&mut self.keys, &added.keys) {
            keys.reserve(new)?;
        }
        match &mut self.numbers {
            Numbers::Positions(_) => Ok(()),
            Numbers::Given(ids) => ids.reserve(n, added.ids.as_deref().map_or(0, largest)),
        }
    }

    fn raise(&mut self, next: u64) {
        self.next = self.next.max(next);
        if let Numbers::Positions(len) = self.numbers
            && self.next != len as u64
        {
            self.numbers = Numbers::Given(Given::new(0..len as i64, len as i64));
        }
    }

    fn check(&self, ids: &[i64], n: usize, monitor: &dyn Monitor) -> Result<()> {
        if ids.len() != n {
            return Err(argument!("ids", "has {} entries for {n} vectors", ids.len()));
        }
        if let Some(row) = ids.iter().position(|&id| id < 0) {
            return Err(argument!(
                "ids",
                "[{row}] is {}: want at least 0 (−1 marks a missing result)",
                ids[row]
            ));
        }
        unique("ids", ids)?;
        monitor.report(0, n as u64)?;
        let taken = match &self.numbers {
            Numbers::Positions(len) => ids.iter().copied().find(|&id| id < *len as i64),
            Numbers::Given(old) => {
                let among = Among::new(ids, old.len());
                let counter = Counter::new(monitor, n as u64);
                let found = chunks(old.len()).map(|mut positions| {
                    counter.add(0)?;
                    Ok(positions.find_map(|position| Some(old.at(position)).filter(|&id| among.contains(id))))
                });
                found.find_map_first(Result::transpose).transpose()?
            }
        };
        match taken {
            Some(id) => Err(argument!("ids", "holds {id}, which the index has already")),
            None => Ok(()),
        }
    }

    /// The positions of `ids`, in that order; `None` for those that are not in the index.
    pub(super) fn find(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Vec<Option<usize>>> {
        let all = match &self.numbers {
            Numbers::Positions(n) => {
                let position = |&id: &i64| usize::try_from(id).ok().filter(|position| position < n);
                return Ok(ids.iter().map(position).collect());
            }
            Numbers::Given(all) => all,
        };
        let among = Among::new(ids, all.len());
        let counter = Counter::new(monitor, all.len() as u64);
        let hits: Result<Vec<Vec<(i64, usize)>>> = chunks(all.len())
            .map(|positions| {
                counter.add(positions.len() as u64)?;
                let named = positions.map(|position| (all.at(position), position));
                Ok(named.filter(|&(id, _)| among.contains(id)).collect())
            })
            .collect();
        let mut hits = hits?.concat();
        // For many ids in a range that is not much wider, a table gives the positions directly.
        let (least, most) =
            hits.iter().fold((i64::MAX, 0), |(least, most), &(id, _)| (least.min(id), most.max(id)));
        let width = most.abs_diff(least) as usize + 1;
        if ids.len() > TABLE && !hits.is_empty() && width / 4 <= all.len() {
            let mut table = vec![usize::MAX; width];
            hits.iter().for_each(|&(id, position)| table[(id - least) as usize] = position);
            let position = |&id: &i64| {
                let at = usize::try_from(id.checked_sub(least)?).ok()?;
                table.get(at).copied().filter(|&position| position != usize::MAX)
            };
            return Ok(ids.par_iter().map(position).collect());
        }
        hits.par_sort_unstable();
        let position = |id: &i64| Some(hits[hits.binary_search_by_key(id, |&(known, _)| known).ok()?].1);
        Ok(ids.par_iter().map(position).collect())
    }

    /// The positions of `ids`, in that order.
    pub(super) fn positions(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Vec<usize>> {
        let found = self.find(ids, monitor)?;
        let missing = found.iter().filter(|position| position.is_none()).count();
        if let Some(first) = found.iter().position(Option::is_none) {
            let more = match missing {
                1 => String::new(),
                2 => ", nor 1 other of these".to_owned(),
                _ => format!(", nor {} others of these", missing - 1),
            };
            return Err(argument!("ids", "hold {id}, and the index has no id {id}{more}", id = ids[first]));
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// The ids at `positions`, which ascend.
    pub(super) fn select(&self, positions: &[usize]) -> Ids {
        let order = match self.order {
            _ if positions.is_empty() => Order::Added,
            Order::Added if positions.len() < self.len() => Order::Removed,
            order => order,
        };
        let ids = positions.iter().map(|&position| self.at(position));
        let numbers = Numbers::Given(Given::new(ids.clone(), ids.max().unwrap_or(0)));
        let keys = self.keys.as_ref().map(|keys| keys.select(positions));
        Ids { numbers, next: self.next, order, keys }
    }
}

/// All positions below `n`, in chunks.
fn chunks(n: usize) -> impl IndexedParallelIterator<Item = Range<usize>> {
    let chunk = move |chunk: usize| chunk * CHUNK..((chunk + 1) * CHUNK).min(n);
    (0..n.div_ceil(CHUNK)).into_par_iter().map(chunk)
}

fn largest(ids: &[i64]) -> i64 {
    ids.iter().copied().max().unwrap_or(0)
}

fn no_keys() -> Error {
    argument!("ids", "are keys: the vectors of this index have ids, no keys")
}

/// One above the largest possible id.
const MOST: u64 = 1 << 63;

/// Whether the ids strictly ascend.
pub(super) fn ascend(ids: &[i64]) -> bool {
    ids.is_sorted_by(|a, b| a < b)
}

/// Rejects ids of which one is repeated.
pub(super) fn unique(name: &'static str, ids: &[i64]) -> Result<()> {
    if ascend(ids) {
        return Ok(());
    }
    let mut sorted = ids.to_vec();
    sorted.par_sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(argument!(name, "holds {} twice", pair[0])),
        None => Ok(()),
    }
}
