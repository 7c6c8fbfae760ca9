// The C ABI of llama_eagle: what llama.h lacks, behind opaque handles. Pure declarations: C++ includes this file
// through eagle.h, and cffi reads it as it is.
//
// Lifetimes: a draft model uses tensors of its target and must be freed before it; a context must be freed before
// its model. Pointers returned by a context are valid until its next decode or encode.
// A handle must not be used by two threads at once. No function aborts or throws because of its arguments.

#define EAGLE_OK                0
#define EAGLE_FULL              1   // no free cells for the batch; nothing was decoded
#define EAGLE_ABORTED           2   // the abort flag was set; nothing of the batch is kept
#define EAGLE_INVALID          -1   // an argument was refused, see the error text
#define EAGLE_FAILED           -2   // llama.cpp failed, see the error text

#define EAGLE_MAX_FEATURES     64
#define EAGLE_PLAIN            -2   // parent of a token that is not a tree node
#define EAGLE_ROWS_BY_OUTPUTS   0   // of a target: as a prompt, where a token has no row of logits
#define EAGLE_ROWS_PROMPT       1   // as a prompt, however few tokens
#define EAGLE_ROWS_SINGLE       2   // as single tokens, however many
#define EAGLE_POST_NORM        -1   // feature: the last hidden state after the final norm

typedef struct eagle_model   eagle_model;
typedef struct eagle_context eagle_context;
typedef struct eagle_sampler eagle_sampler;

typedef struct eagle_model_params {
    int32_t n_gpu_layers;   // < 0: all
    int32_t use_mmap;
    int32_t vocab_only;
    eagle_model * target;   // a draft takes missing embeddings and head from it; may be NULL
} eagle_model_params;

typedef struct eagle_model_info {
    int32_t n_vocab;
    int32_t n_logits;       // width of a row of logits: the draft vocabulary for a draft
    int32_t n_embd;
    int32_t n_layer;
    int32_t n_ctx_train;
    int32_t n_features;     // of a draft: how many features of the target it reads
    int32_t features[EAGLE_MAX_FEATURES];   // ids: input of layer i, n_layer = output of the last layer, EAGLE_POST_NORM
    int32_t n_embd_target;  // of a draft: the target's hidden size
    int32_t is_draft;
    int32_t is_recurrent;   // recurrent or hybrid state
    int32_t token_bos;
    int32_t token_eos;
    int32_t vocab_type;     // llama_vocab_type
    int32_t add_bos;
    uint64_t n_params;
    uint64_t size;          // bytes
} eagle_model_info;

typedef struct eagle_context_params {
    int32_t n_ctx;          // 0: from the model
    int32_t n_batch;
    int32_t n_ubatch;
    int32_t n_seq_max;
    int32_t n_paths;        // 0: eagle_verify by tree attention; > 0: path by path, so many leaves a step over all its turns
    int32_t n_outputs_max;  // 0: n_batch
    int32_t n_threads;
    int32_t flash_attn;     // -1: auto, 0, 1
    int32_t type_k;         // ggml_type
    int32_t type_v;
    int32_t kv_unified;
    int32_t swa_full;
    int32_t n_rollback;     // tokens that a chain can be taken back by: its greatest length without the root
    int32_t n_features;     // features to extract, ids as in eagle_model_info
    const int32_t * features;
    const int32_t * abort_flag; // decode stops soon after *abort_flag != 0; may be NULL
} eagle_context_params;

typedef struct eagle_load { // a model and its context, as they would be loaded
    const char * path;
    int32_t n_gpu_layers;   // < 0: all
    eagle_context_params context;
} eagle_load;

typedef struct eagle_batch {
    int32_t n_tokens;
    const int32_t * tokens;  // [n_tokens]
    const float   * embd;    // [n_tokens, n_embd]: the features of a draft's tokens; NULL for a target
    const int32_t * seq_ids; // [n_tokens]; NULL: sequence 0
    const int32_t * parents; // [n_tokens] EAGLE_PLAIN, -1 = child of the last committed token, or a node; NULL: all plain
                             // nodes of a sequence count from 0 in the order they were decoded since the last commit
    const int8_t  * outputs; // [n_tokens] rows of logits wanted; NULL: the last token only
    int32_t rows;            // how attention rounds on a CPU: EAGLE_ROWS_...
} eagle_batch;

typedef struct eagle_tree_shape {
    int32_t nodes;           // without the root
    int32_t depth;
    int32_t top_k;           // children of a node
    const float * prices;    // [nodes] of the best 1, 2, ... nodes together, in accepted tokens: so many are taken as gain most;
                             // NULL: nodes cost nothing
    float level;             // least log probability of a node whose children are drafted, where prices are given
} eagle_tree_shape;

typedef struct eagle_static_shape { // nodes in level order
    int32_t nodes;           // without the root
    const int32_t * parents; // [nodes] an earlier node, -1: the root
    const int32_t * ranks;   // [nodes] 0: the draft's best token behind the parent, 1: its second best ...
} eagle_static_shape;

typedef struct eagle_tree {  // arrays of the caller, each of shape.nodes
    int32_t n;
    int32_t * tokens;
    int32_t * parents;       // -1: the root
    int32_t * depths;        // 1: a child of the root
    float   * scores;        // cumulative log probability
    int32_t n_levels;        // out: that were drafted, those without a node in the tree included
    float   promised;        // out: accepted tokens that the draft expects, the sum of its nodes' probabilities
} eagle_tree;

typedef struct eagle_context_info {
    int32_t n_ctx;
    int32_t n_ctx_seq;
    int32_t n_batch;
    int32_t n_ubatch;
    int32_t n_seq_max;
    int32_t has_tree;        // the memory can hold uncommitted nodes
    int32_t n_logits;
    int32_t n_threads;
    int32_t n_rollback;      // as it is: 0 where the architecture's recurrent state cannot go back
    int64_t state_bytes;     // recurrent state of all sequences, what rollback adds to it included; 0: there is none
    int64_t snapshot_bytes;  // of that, what each token of n_rollback costs
} eagle_context_info;

typedef struct eagle_context_stats {
    int64_t n_decode;        // llama_decode calls
    int64_t n_encode;
    int64_t n_tokens;        // tokens decoded
    int64_t n_reused;        // graphs reused
    int64_t n_built;         // graphs built, those of its making apart
} eagle_context_stats;

typedef struct eagle_path {  // arrays of the caller
    int32_t n;               // out: nodes accepted
    int32_t * nodes;         // [depth of the tree], from the root's child downwards
    int32_t * tokens;        // likewise
    int32_t next;            // the target's token behind them, the next root
} eagle_path;

typedef struct eagle_scores { // of the path's tokens and of next: log softmax of the target's rows before any sampling
    int32_t k;               // how many of the likeliest tokens, 0: none
    float   * logp;          // [path.n + 1]; arrays of the caller, with room for the tree's depth
    int32_t * top;           // [path.n + 1, k] best first, the smaller id winning a tie; fewer in the vocabulary: -1
    float   * top_logp;      // likewise
} eagle_scores;

typedef struct eagle_turn {  // one sequence's part in a step
    int32_t seq_id;
    int32_t n_tokens;        // ordinary tokens to decode, the root last
    const int32_t * tokens;
    const eagle_tree_shape   * shape; // draft a dynamic tree
    const eagle_static_shape * nodes; // or given nodes; both NULL: the tree is as it is given, and n = 0 is a plain step
    eagle_tree tree;
    int32_t prompt;          // the tokens are a piece of a prompt
    int32_t chooses;         // 0: it goes on, and nothing is chosen behind them
    int32_t observed;        // the draft is to see what is decoded
    eagle_sampler * sampler; // chooses; NULL: the argmax does
    int32_t drawn;           // the nodes' tokens are drawn from the draft at the sampler's temperature, a node's children
                             // without replacement in their order, and accepted by rejection with the residual
    eagle_path path;
    const eagle_scores * scores; // NULL: none wanted
    int32_t n_built;         // out of eagle_step: graphs that the step built, those of other turns included
    int32_t n_reused;        // likewise: graphs that were there
    int32_t code;            // out: EAGLE_OK, or why nothing could be chosen; its ordinary tokens are kept, no node is
    char error[256];
} eagle_turn;

typedef struct eagle_seconds { // added to
    double draft;
    double verify;
} eagle_seconds;

typedef struct eagle_sampler_params { // as llama.cpp's flags of these names
    float temperature;       // below 1e-5: the largest logit, the smallest id winning a tie
    int32_t top_k;           // <= 0: all
    float top_p;             // 1: all
    float min_p;             // 0: all
    float typical_p;         // 1: all
    float repeat_penalty;    // 1: none
    int32_t repeat_last_n;   // tokens that the penalties see, those of the prompt among them
    float presence_penalty;
    float frequency_penalty;
    uint32_t seed;
    int32_t stop_at_eog;     // eagle_verify goes no further than an end token
    int32_t n_bias;
    const int32_t * bias_tokens; // [n_bias]
    const float * bias_values;   // [n_bias], finite or -infinity
    const char * grammar;    // GBNF with a rule named root; NULL: none
} eagle_sampler_params;

typedef struct eagle_sampler_info {
    int64_t n_emitted;       // tokens accepted behind the prompt
    int64_t n_draws;         // of them, those it chose
    int32_t is_argmax;       // it changes nothing: the path along the largest logits is its choice
} eagle_sampler_info;

// build, devices and log
const char * eagle_llama_cpp(void);                        // version and system info of llama.cpp
int32_t eagle_backends_load(const char * dir);             // load ggml's backends from a directory, if they are separate
int32_t eagle_device_count(void);
int32_t eagle_device_describe(int32_t index, char * name, int32_t name_size, char * description, int32_t description_size,
                              uint64_t * memory_free, uint64_t * memory_total, int32_t * type);
// bytes that a target and its draft (NULL: none) would take of each device, by its index: weights, caches and buffers.
// Nothing is loaded. Devices whose memory is the host's stay 0
int32_t eagle_device_bytes(const eagle_load * target, const eagle_load * draft, uint64_t * bytes, char * error, int32_t error_size);
int32_t eagle_log_next(char * text, int32_t size, int32_t * level);  // oldest unread line: its length, or -1; level as ggml's
void    eagle_log_level(int32_t level);                    // keep lines of at least this level (ggml_log_level)

// quantisation of one tensor; types are ggml_type: f32, f16, bf16, q4_0 to q8_0, q2_K to q6_K, iq4_nl, iq4_xs
int64_t eagle_row_size(int32_t type, int64_t n_per_row);   // bytes of a row, or -1: not such a type, or no whole blocks
int32_t eagle_quantize(int32_t type, const float * src, void * dst, int64_t n_rows, int64_t n_per_row); // finite values only

// model
eagle_model * eagle_model_load(const char * path, const eagle_model_params * params, char * error, int32_t error_size);
void    eagle_model_free(eagle_model * model);
int32_t eagle_model_describe(const eagle_model * model, eagle_model_info * info);
int32_t eagle_model_meta(const eagle_model * model, const char * key, char * value, int32_t size); // length, or -1
int32_t eagle_model_d2t(const eagle_model * model, int32_t * ids); // [n_logits] target id of each draft id; 1 when it is a map
int32_t eagle_model_tokenize(const eagle_model * model, const char * text, int32_t length, int32_t * tokens, int32_t size,
                             int32_t add_special, int32_t parse_special); // count, or -count when size is too small
int32_t eagle_model_piece(const eagle_model * model, int32_t token, char * text, int32_t size, int32_t special); // likewise
int32_t eagle_model_is_eog(const eagle_model * model, int32_t token);

// context
eagle_context * eagle_context_init(eagle_model * model, const eagle_context_params * params, char * error, int32_t error_size);
void    eagle_context_free(eagle_context * ctx);
int32_t eagle_context_describe(const eagle_context * ctx, eagle_context_info * info);
int32_t eagle_context_count(const eagle_context * ctx, eagle_context_stats * stats);
const char * eagle_context_error(const eagle_context * ctx);

int32_t eagle_decode(eagle_context * ctx, const eagle_batch * batch);
int32_t eagle_encode(eagle_context * ctx, const float * features, int32_t n_rows); // [n_rows, n_features * n_embd_target]

// results of the last decode; rows are its outputs in the order of the batch
int32_t eagle_n_outputs(const eagle_context * ctx);
int32_t eagle_n_rows(const eagle_context * ctx);           // tokens of the last decode
const float * eagle_logits(eagle_context * ctx);           // [n_outputs, n_logits]
const float * eagle_hidden(eagle_context * ctx);           // draft: [n_outputs, n_embd], the next step's input; after encode [n_rows, n_embd]
int32_t eagle_argmax(eagle_context * ctx, int32_t * ids);  // [n_outputs], the smallest id wins a tie
int32_t eagle_top_k(eagle_context * ctx, int32_t k, int32_t * ids, float * logp); // [n_outputs, k] best first; target ids
int32_t eagle_features(eagle_context * ctx, const int32_t * rows, int32_t n_rows, float * out); // [n_rows, n_features * n_embd]

// what a draft still has to see of a sequence: features of decoded tokens, each with the token behind it
int32_t eagle_observe(eagle_context * ctx, int32_t seq_id, const int32_t * tokens, const float * features, int32_t n); // of the target, in order
int32_t eagle_catch_up(eagle_context * ctx, int32_t seq_id);  // encode and decode every pair whose token is known
int32_t eagle_forget(eagle_context * ctx, int32_t seq_id);    // drop all of it
int32_t eagle_n_pending(const eagle_context * ctx, int32_t seq_id);        // rows of features
int32_t eagle_pending_read(const eagle_context * ctx, int32_t seq_id, int32_t * tokens, float * features); // [n] each; how many of the tokens are known

// a step of several sequences, and its parts; no sequence twice
// decode what is pending and the roots, then grow the trees of turns that ask for one, all of them level by level; the
// memory keeps the pairs and no node. A sequence of which nothing is pending gets no tree
int32_t eagle_draft(eagle_context * ctx, eagle_turn * const * turns, int32_t n);
// take nodes away that a grammar forbids, decode tokens and trees in one batch; in each tree descend while a child carries
// the token that the sampler draws, and commit that path: a sampler has accepted the path's tokens and the next root, no
// others. Drawn trees need the numbers and the weights that eagle_draft left in the sampler
int32_t eagle_verify(eagle_context * ctx, eagle_turn * const * turns, int32_t n);
// both; the draft observes what the target decoded. draft: NULL for plain steps
int32_t eagle_step(eagle_context * target, eagle_context * draft, eagle_turn * const * turns, int32_t n, eagle_seconds * seconds);

// the same for targets whose memory holds no trees: a root and a chain of draft tokens as ordinary tokens, an output each;
// then the first n_past tokens of the sequence stay. A recurrent state goes back once after a decode, by its tokens but the
// first, at most n_rollback. Where it cannot, EAGLE_FAILED, and the sequence is cleared. Sequences that share a decode can
// go back if they have equally many tokens in it, together at most n_ubatch; one of them may have more, by > n_rollback.
int32_t eagle_chain_decode(eagle_context * ctx, int32_t seq_id, const int32_t * tokens, int32_t n);
int32_t eagle_chain_keep(eagle_context * ctx, int32_t seq_id, int32_t n_past);

// sampler: of a target; must be freed before its model. llama.cpp's samplers in its default order, a grammar before them,
// then one uniform number per emitted token: number `index` of the seed's stream, whatever was drafted
eagle_sampler * eagle_sampler_init(const eagle_model * model, const eagle_sampler_params * params, char * error, int32_t error_size);
eagle_sampler * eagle_sampler_clone(const eagle_sampler * sampler); // NULL: see the error text
void    eagle_sampler_free(eagle_sampler * sampler);
const char * eagle_sampler_error(const eagle_sampler * sampler);
int32_t eagle_sampler_reset(eagle_sampler * sampler);      // as after init
int32_t eagle_sampler_prompt(eagle_sampler * sampler, const int32_t * tokens, int32_t n); // penalties see them, the grammar does not
int32_t eagle_sampler_accept(eagle_sampler * sampler, int32_t token); // a token that something else chose
int32_t eagle_sampler_describe(const eagle_sampler * sampler, eagle_sampler_info * info);
int32_t eagle_sampler_candidates(eagle_sampler * sampler, const float * logits, int32_t * ids, float * scaled); // [n_vocab] each:
                                                           // tokens left of a row by id, and their processed logits; how many
int32_t eagle_sample(eagle_sampler * sampler, eagle_context * ctx, int32_t row, int32_t * token); // draw from an output, accept
int32_t eagle_prune(const eagle_sampler * sampler, eagle_tree * tree); // takes nodes away that its grammar forbids
double  eagle_sampler_uniform(uint32_t seed, int64_t index); // in [0, 1)
int32_t eagle_schema_grammar(const char * schema, char * text, int32_t size); // GBNF of a JSON schema: its length (cut to size),
                                                           // or EAGLE_INVALID and what is wrong

// memory
int32_t eagle_commit(eagle_context * ctx, int32_t seq_id, const int32_t * path, int32_t n_path); // keep a path from the root, free other nodes
int32_t eagle_seq_rm(eagle_context * ctx, int32_t seq_id, int32_t p0, int32_t p1);
int32_t eagle_seq_cp(eagle_context * ctx, int32_t src, int32_t dst);
int32_t eagle_seq_n_past(const eagle_context * ctx, int32_t seq_id);  // committed tokens' next position
int32_t eagle_seq_n_nodes(const eagle_context * ctx, int32_t seq_id); // uncommitted nodes
int32_t eagle_cells_used(const eagle_context * ctx, int32_t seq_id, int32_t window); // of the cache that holds seq_id; window: the sliding one
int32_t eagle_clear(eagle_context * ctx);

// drop positions [keep, keep + discard) of a sequence and move the later ones down; nothing is decoded again
int32_t eagle_can_shift(const eagle_context * ctx);        // 1, or 0 and the reason as the error text
int32_t eagle_seq_shift(eagle_context * ctx, int32_t seq_id, int32_t keep, int32_t discard);

// what the memory holds of one sequence, as bytes for a context of the same model, types and number of caches
int64_t eagle_state_size(eagle_context * ctx, int32_t seq_id); // bytes, or a code below 0
int32_t eagle_state_get(eagle_context * ctx, int32_t seq_id, void * out, int64_t size);
// refused bytes leave the sequence as it was (EAGLE_FULL: no free cells); where llama.cpp fails it is empty afterwards
int32_t eagle_state_set(eagle_context * ctx, int32_t seq_id, const void * data, int64_t size);
