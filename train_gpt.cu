// train_gpt: the story of the program.
int main() { return 0; }
