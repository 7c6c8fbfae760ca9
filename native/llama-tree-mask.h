#pragma once

// Tree attention: which uncommitted nodes a token may see. Positions, windows and sequences are the cache's business.
// Included by the patched llama-kv-cache.cpp.

#include "llama-kv-cells.h"
#include "llama-tree.h"

#include <vector>

class llama_tree_mask {
public:
    // prepare for one token of a sequence: its ancestors and itself become visible
    void select(const llama_kv_cells & cells, llama_seq_id seq_id, const llama_tree_node & cur) {
        visible.clear();
        if (cur.is_committed()) {
            return;
        }
        index(cells, seq_id);
        visible.assign(parents.size(), false);
        // a node's parent has a smaller id, so the walk ends
        for (int32_t node = cur.node; node >= 0 && node < (int32_t) parents.size(); node = parents[node]) {
            visible[node] = true;
        }
    }

    bool sees(const llama_tree_node & cell) const {
        return cell.is_committed() || (cell.node < (int32_t) visible.size() && visible[cell.node]);
    }

private:
    // parents by node id, read once per sequence
    void index(const llama_kv_cells & cells, llama_seq_id seq_id) {
        if (seq_id == indexed) {
            return;
        }
        indexed = seq_id;
        parents.clear();
        for (const uint32_t i : cells.tree_cells(seq_id)) {
            const llama_tree_node & cell = cells.tree_get(i);
            if ((size_t) cell.node >= parents.size()) {
                parents.resize(cell.node + 1, -1);
            }
            parents[cell.node] = cell.parent;
        }
    }

    llama_seq_id indexed = -1;

    std::vector<int32_t> parents; // [max node id + 1]
    std::vector<bool>    visible; // [max node id + 1]
};
